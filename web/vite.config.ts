// SPDX-License-Identifier: Apache-2.0
// The page is built into the Python package, which serves it and carries it in its wheel.
import { defineConfig } from "vitest/config";

export default defineConfig({
  build: {
    outDir: "../src/pilothouse/server/static",
    emptyOutDir: true,
    // The server's content policy allows files of its own only, no data: addresses.
    assetsInlineLimit: 0,
    target: "es2022",
  },
  server: {
    // `npm run dev` beside a running `pilothouse up`.
    proxy: { "/v1": "http://127.0.0.1:8088" },
  },
  test: {
    environment: "happy-dom",
    include: ["src/**/*.test.ts", "src/**/*.test.tsx"],
    testTimeout: 60_000, // a busy machine may stand still for the usual 5 s
  },
});
