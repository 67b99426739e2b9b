// SPDX-License-Identifier: Apache-2.0
// Writes src/api.ts from the committed OpenAPI document.
import { readFileSync, writeFileSync } from "node:fs";
import { render } from "./render.mjs";

const document = JSON.parse(readFileSync(new URL("../../api/openapi.json", import.meta.url), "utf8"));
writeFileSync(new URL("../src/api.ts", import.meta.url), render(document));
