// Reads {"bicep": [text, ...], "yaml": [text, ...]} and writes the syntax trees of the first and the values of the second.
import { createRequire } from 'node:module';
import { text } from 'node:stream/consumers';
import { Language, Parser } from 'web-tree-sitter';
import { parse as parseYAML } from 'yaml';

await Parser.init();
const grammar = createRequire(import.meta.url).resolve('tree-sitter-bicep/tree-sitter-bicep.wasm');
const parser = new Parser();
parser.setLanguage(await Language.load(grammar));

// A node is {kind, text, line, children}; only a node without named children has its text.
function tree(node) {
  const children = node.children.filter((child) => child.type !== 'comment').map(tree);
  const line = node.startPosition.row + 1;
  return { kind: node.isMissing ? 'ERROR' : node.type, named: node.isNamed, line, text: node.namedChildCount ? '' : node.text, children };
}

const input = JSON.parse(await text(process.stdin));
console.log(JSON.stringify({
  bicep: input.bicep.map((source) => tree(parser.parse(source).rootNode)),
  yaml: input.yaml.map((source) => parseYAML(source)),
}));
