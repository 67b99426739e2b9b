// SPDX-License-Identifier: Apache-2.0
// The page begins here.
import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { listen } from "./store.ts";
import { Page } from "./views/page.tsx";

const root = document.getElementById("page");
if (root !== null) {
  render(<Page />, root);
  listen();
}
