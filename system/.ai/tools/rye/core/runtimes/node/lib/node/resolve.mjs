/**
 * Lets a tool load only what was verified.
 *
 * @description Which files a tool for Node can load
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

/** A file that was found, if it is one of those that were verified. */
export function checked(file, specifier, { roots }) {
  const real = fs.existsSync(file) ? fs.realpathSync(file) : file;
  if (roots.some((root) => real.startsWith(root + path.sep))) return file;
  const error = new Error(`'${specifier}' leads to ${file}, which was not signed with the tool`);
  error.code = "ERR_RYE_NOT_VERIFIED";
  throw error;
}

/** The same error, with what to sign if the file is beside the tool and only not signed. */
export function explained(error, specifier, { source }) {
  if (error.code !== "MODULE_NOT_FOUND" && error.code !== "ERR_MODULE_NOT_FOUND") return error;
  const folder = path.dirname(source);
  const isRelative = specifier.startsWith(".");
  const beside = isRelative ? path.resolve(folder, specifier) : path.join(folder, "node_modules", specifier);
  const is = (extension) => fs.existsSync(beside + extension);
  if (["", ".js", ".json", ".node"].some(is)) {
    const unsigned = isRelative ? folder : path.join(folder, "node_modules");
    error.message += `\nhint: it is there, and not signed: rye sign --manifest '${unsigned}'`;
  }
  return error;
}
