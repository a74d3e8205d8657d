/**
 * Module resolver that allows only verified files.
 *
 * @description Module resolver for Node tools
 * @version 1.0.0
 * @tool_type library
 * @category rye/core/runtimes/node
 */
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

let tool;

export async function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  let found;
  try {
    found = await next(specifier, context);
  } catch (error) {
    throw explained(error, specifier, tool);
  }
  if (found.url.startsWith("file:")) checked(fileURLToPath(found.url), specifier, tool);
  return found;
}

/** Returns a resolved file if it is verified. */
export function checked(file, specifier, { roots }) {
  const real = fs.existsSync(file) ? fs.realpathSync(file) : file;
  if (roots.some((root) => real.startsWith(root + path.sep))) return file;
  const error = new Error(`'${specifier}' resolves to ${file}, which is not signed with the tool`);
  error.code = "ERR_RYE_NOT_VERIFIED";
  throw error;
}

/** Adds a hint to an error if the file exists next to the tool but is not signed. */
export function explained(error, specifier, { source }) {
  if (error.code !== "MODULE_NOT_FOUND" && error.code !== "ERR_MODULE_NOT_FOUND") return error;
  const directory = path.dirname(source);
  const isRelative = specifier.startsWith(".");
  const modules = path.join(directory, "node_modules");
  const candidate = isRelative ? path.resolve(directory, specifier) : path.join(modules, specifier);
  const exists = (extension) => fs.existsSync(candidate + extension);
  if (["", ".js", ".json", ".node"].some(exists)) {
    const unsigned = isRelative ? directory : modules;
    error.message += `\nhint: rye sign --manifest '${unsigned}' # the file exists but is not signed`;
  }
  return error;
}
