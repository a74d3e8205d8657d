/**
 * Resolves what the private copy of a tool imports as if it were the tool itself.
 *
 * @description How the imports of a tool for Node are resolved
 * @version 1.0.0
 * @tool_type library
 * @category rye/core/runtimes/node
 */
let tool;

export async function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  const isOwn = context.parentURL === tool.copy;
  const found = await next(specifier, isOwn ? { ...context, parentURL: tool.source } : context);
  if (found.url === tool.source) return { ...found, url: tool.copy };
  if (found.url === tool.copy && tool.format) return { ...found, format: tool.format };
  return found;
}
