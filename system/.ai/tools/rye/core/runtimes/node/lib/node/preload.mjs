/**
 * Node loads this module before a tool. Node runs a private copy of the tool and its
 * dependencies. This module prevents it from loading anything else, because Node would search
 * all parent directories for packages and package.json files.
 * TypeScript runs if this Node or tsx supports it; otherwise the error names what to install.
 *
 * @description Preload module for Node tools
 * @version 1.0.0
 * @tool_type library
 * @category rye/core/runtimes/node
 */
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import module from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { checked, explained } from "./resolve.mjs";

const copy = process.argv[1];
const anchor = process.env.RYE_TOOL_ANCHOR;
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
    "run `npm install tsx` in the directory of its package.json and sign its node_modules " +
    "with `rye sign --manifest`, or use Node 22.6 or newer";
  console.log(JSON.stringify({ success: false, error }));
  process.exit(0);
}

/** Whether a source imports modules other than Node's built-in ones. */
function importsOthers(text) {
  const named = /(?:\bfrom|\bimport|\brequire)\s*\(?\s*(["'`])(.*?)\1/g;
  const computed = /\b(?:import|require)\s*\(\s*[^"'\s)]/;
  const others = [...text.matchAll(named)].some(([, , name]) => !module.isBuiltin(name));
  return others || computed.test(text) || text.includes("createRequire");
}

/** The verified directories: the copy, and the environments that it links to. */
function verifiedRoots() {
  const links = fs.readdirSync(anchor, { withFileTypes: true }).filter((entry) => entry.isSymbolicLink());
  const linked = links.map((entry) => path.join(anchor, entry.name)).filter((link) => fs.existsSync(link));
  const own = fileURLToPath(new URL(".", import.meta.url));
  return [anchor, own, ...linked].map((directory) => fs.realpathSync(directory));
}

function confine() {
  if (!importsOthers(fs.readFileSync(copy, "utf8"))) return;
  const data = { roots: verifiedRoots(), source };
  module.register("./resolve.mjs", import.meta.url, { data });

  const resolve = module._resolveFilename;
  module._resolveFilename = function (request, ...rest) {
    let found;
    try {
      found = resolve.call(this, request, ...rest);
    } catch (error) {
      throw explained(error, request, data);
    }
    return path.isAbsolute(found) ? checked(found, request, data) : found;
  };
}

if (copy) typescript();
if (copy && anchor) confine();
