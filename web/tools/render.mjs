// SPDX-License-Identifier: Apache-2.0
// TypeScript types from the OpenAPI document: one interface per shape, one JSDoc line per field.

/**
 * The part of JSON Schema that the document uses.
 * @typedef {{
 *   type?: string,
 *   description?: string,
 *   enum?: string[],
 *   anyOf?: Schema[],
 *   items?: Schema,
 *   additionalProperties?: Schema,
 *   properties?: Record<string, Schema>,
 *   $ref?: string,
 * }} Schema
 */

/**
 * @param {Schema} schema
 * @returns {string}
 */
function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop() ?? "never";
  if (schema.enum) return schema.enum.map((word) => JSON.stringify(word)).join(" | ");
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" | ");
  if (schema.type === "array") return `ReadonlyArray<${typeOf(schema.items ?? {})}>`;
  if (schema.type === "object") return `Readonly<Record<string, ${typeOf(schema.additionalProperties ?? {})}>>`;
  if (schema.type === "integer" || schema.type === "number") return "number";
  if (schema.type === "string" || schema.type === "boolean" || schema.type === "null") return schema.type;
  return "unknown";
}

/**
 * @param {{ components: { schemas: Record<string, Schema> } }} document
 * @returns {string}
 */
export function render(document) {
  const parts = [
    "// SPDX-License-Identifier: Apache-2.0",
    "// The shapes of the API, made from api/openapi.json by `npm run types`. Do not edit.",
  ];
  for (const [name, schema] of Object.entries(document.components.schemas)) {
    parts.push("", `/** ${schema.description ?? name} */`, `export interface ${name} {`);
    for (const [field, about] of Object.entries(schema.properties ?? {})) {
      parts.push(`  /** ${about.description ?? field} */`, `  readonly ${field}: ${typeOf(about)};`);
    }
    parts.push("}");
  }
  return parts.join("\n") + "\n";
}
