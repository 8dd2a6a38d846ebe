// Reads {"samples": [{"language": "csharp", "source": "..."}, ...], "variables": {name: value}} and writes, for each sample, the
// value that it assigns to the variable envelope, or an error.
import { createRequire } from 'node:module';
import { text } from 'node:stream/consumers';
import { Language, Parser } from 'web-tree-sitter';

const grammars = { csharp: 'tree-sitter-c-sharp/tree-sitter-c_sharp.wasm', python: 'tree-sitter-python/tree-sitter-python.wasm' };

// The named children that are no comments.
const parts = (node) => node.namedChildren.filter((child) => child.type !== 'comment');

// value computes the expressions that make an envelope: objects, texts with variables, numbers and variables.
function value(node, variables) {
  switch (node.type) {
    case 'integer':
    case 'integer_literal':
      return Number(node.text);
    case 'identifier':
      if (!(node.text in variables)) throw new Error(`line ${line(node)}: unknown variable ${node.text}`);
      return variables[node.text];
    case 'string':
    case 'string_literal':
    case 'interpolated_string_expression':
      return parts(node).map((part) => textOf(part, variables)).join('');
    case 'dictionary': // {"name": value}
      return object(parts(node).map((pair) => parts(pair)), (key) => value(key, variables), variables);
    case 'anonymous_object_creation_expression': // new { name = value, name }
      return object(members(node), (key) => key.text, variables);
  }
  throw new Error(`line ${line(node)}: a ${node.type} is not evaluated`);
}

function textOf(part, variables) {
  switch (part.type) {
    case 'string_content':
    case 'string_literal_content':
      return part.text;
    case 'interpolation':
      return String(value(parts(part).find((child) => child.type !== 'interpolation_brace'), variables));
    case 'string_start': // quotes
    case 'string_end':
    case 'interpolation_start':
      return '';
  }
  throw new Error(`line ${line(part)}: a ${part.type} is not evaluated`);
}

// members returns the names and values of an anonymous object; a name alone is its own value.
function members(node) {
  const tokens = node.children.filter((child) => child.type !== 'comment');
  const found = [];
  tokens.forEach((token, i) => {
    if (tokens[i - 1]?.type === '{' || tokens[i - 1]?.type === ',') {
      if (token.type !== '}') found.push([token, tokens[i + 1].type === '=' ? tokens[i + 2] : token]);
    }
  });
  return found;
}

function object(pairs, name, variables) {
  const result = {};
  for (const [key, member] of pairs) {
    if (name(key) in result) throw new Error(`line ${line(key)}: ${name(key)} is there twice`);
    result[name(key)] = value(member, variables);
  }
  return result;
}

const line = (node) => node.startPosition.row + 1;

// envelope returns the expression that is assigned to the variable envelope.
function envelope(root) {
  for (const type of ['variable_declarator', 'assignment']) {
    for (const node of root.descendantsOfType(type)) {
      if (node.namedChild(0).text === 'envelope') return parts(node).at(-1);
    }
  }
  throw new Error('there is no variable envelope');
}

async function evaluate({ language, source }, variables) {
  const parser = new Parser();
  parser.setLanguage(await Language.load(createRequire(import.meta.url).resolve(grammars[language])));
  const root = parser.parse(source).rootNode;
  if (root.hasError) return { error: 'syntax error' };
  try {
    return { envelope: value(envelope(root), variables) };
  } catch (error) {
    return { error: error.message };
  }
}

await Parser.init();
const { samples, variables } = JSON.parse(await text(process.stdin));
const results = [];
for (const sample of samples) results.push(await evaluate(sample, variables));
console.log(JSON.stringify(results));
