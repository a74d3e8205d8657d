/**
 * What Node loads before a tool. Node runs a private copy of the tool, so that
 * what was verified is what runs; the tool's imports are those of its own folder.
 * TypeScript is run where this Node, or tsx, can; elsewhere it says what to install.
 *
 * @description What Node loads before a tool
 * @version 1.0.0
 * @tool_type library
 * @category rye/core/runtimes/node
 */
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import module from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const copy = process.argv[1];
const source = process.env.RYE_TOOL_SOURCE;

function typescript() {
  const isTsx = path.basename(process.env.RYE_NODE ?? "") === "tsx";
  if (!/\.[cm]?ts$/.test(copy) || isTsx || process.features.typescript) return;
  const [major, minor] = process.versions.node.split(".").map(Number);
  const strip = "--experimental-strip-types";
  if ((major > 22 || (major === 22 && minor >= 6)) && !process.execArgv.includes(strip)) {
    const words = [strip, "--disable-warning=ExperimentalWarning", ...process.execArgv];
    const done = spawnSync(process.execPath, [...words, ...process.argv.slice(1)], { stdio: "inherit" });
    process.exit(done.status ?? 1);
  }
  const error =
    `this tool is TypeScript, which Node ${process.versions.node} does not run by itself: ` +
    "run `npm install tsx` in the folder that has its package.json, or use Node 22.6 or newer";
  console.log(JSON.stringify({ success: false, error }));
  process.exit(0);
}

/** What the nearest package.json above a file says about .js files. */
function packageType(file) {
  for (let folder = path.dirname(file); ; folder = path.dirname(folder)) {
    try {
      return JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8")).type;
    } catch (error) {
      if (error.code !== "ENOENT" || folder === path.dirname(folder)) return undefined;
    }
  }
}

/** Whether a text imports more than Node's own modules. */
function importsOthers(text) {
  const named = /(?:\bfrom|\bimport|\brequire)\s*\(?\s*(["'`])(.*?)\1/g;
  const computed = /\b(?:import|require)\s*\(\s*[^"'\s)]/;
  const others = [...text.matchAll(named)].some(([, , name]) => !module.isBuiltin(name));
  return others || computed.test(text) || text.includes("createRequire");
}

function imports() {
  const text = fs.readFileSync(copy, "utf8");
  const isModule = /\.[jt]s$/.test(copy) && packageType(source) === "module";
  if (!isModule && !importsOthers(text)) return;
  const data = {
    copy: pathToFileURL(copy).href,
    source: pathToFileURL(source).href,
    format: isModule && copy.endsWith(".js") ? "module" : undefined,
  };
  module.register("./resolve.mjs", import.meta.url, { data });

  const own = module._resolveFilename;
  module._resolveFilename = function (request, parent, ...rest) {
    if (parent?.filename !== copy) return own.call(this, request, parent, ...rest);
    const paths = module._nodeModulePaths(path.dirname(source));
    const there = { ...parent, id: source, filename: source, paths };
    const found = own.call(this, request, there, ...rest);
    return found === source ? copy : found;
  };
}

if (copy) typescript();
if (copy && source) imports();
