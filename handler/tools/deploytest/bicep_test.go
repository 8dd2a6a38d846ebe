package deploytest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"asynccaller/handler/tools/azurite"
)

// node is a node of Bicep's syntax tree.
type node struct {
	Kind     string
	Named    bool
	Line     int
	Text     string
	Children []node
}

// named returns the children that are more than punctuation.
func (n node) named() []node {
	return slices.DeleteFunc(slices.Clone(n.Children), func(c node) bool { return !c.Named })
}

// find returns the outermost nodes of a kind.
func (n node) find(kind string) (found []node) {
	for _, c := range n.Children {
		if c.Kind == kind {
			found = append(found, c)
		} else {
			found = append(found, c.find(kind)...)
		}
	}
	return found
}

// parsed are the results of parse.mjs.
type parsed struct {
	Bicep []node
	YAML  []any
}

// parse runs the parsers from npm.
func parse(t *testing.T, bicep, yaml []string) parsed {
	t.Helper()
	var log, errors bytes.Buffer
	if err := azurite.InstallIn(t.Context(), ".", &log); err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	input, err := json.Marshal(map[string][]string{"bicep": append([]string{}, bicep...), "yaml": append([]string{}, yaml...)})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "parse.mjs")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &errors
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("node parse.mjs: %v\n%s", err, &errors)
	}
	var result parsed
	if err := json.Unmarshal(output, &result); err != nil {
		t.Fatal(err)
	}
	return result
}

// unknown is a value that only Azure knows, with its expression.
type unknown string

// resource is a resource of a template that was evaluated.
type resource struct {
	Symbol, Type string
	Line         int
	Body         map[string]any
}

// template is a template that was evaluated for one set of parameters.
type template struct {
	Resources []resource
	Outputs   map[string]any
	problems
}

// problems collects what is wrong.
type problems []string

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// ofType returns the resources of a type, whatever its API version.
func (t *template) ofType(name string) (found []resource) {
	for _, r := range t.Resources {
		if short, _, _ := strings.Cut(r.Type, "@"); short == name {
			found = append(found, r)
		}
	}
	return found
}

// functions are the functions of Bicep that evaluate does not compute, because Azure does.
var functions = []string{"guid", "resourceGroup", "subscriptionResourceId", "uniqueString"}

// evaluator computes the values of a template. Names are the parameters and variables; an unknown one is a problem.
type evaluator struct {
	*template
	names   map[string]any
	symbols map[string]bool // the resources
}

// evaluate computes the resources that the template makes with these parameters.
func evaluate(root node, parameters map[string]any) *template {
	e := evaluator{&template{Outputs: map[string]any{}}, map[string]any{}, map[string]bool{}}
	for _, broken := range root.find("ERROR") {
		e.add("line %d: syntax error", broken.Line)
	}
	if root.Kind == "ERROR" {
		e.add("syntax error")
	}
	if len(e.problems) > 0 {
		return e.template
	}
	for _, n := range root.find("resource_declaration") {
		e.symbols[n.named()[0].Text] = true
	}
	declared := map[string]bool{}
	var decorators node
	for _, n := range root.named() {
		parts := n.named()
		switch n.Kind {
		case "decorators":
			decorators = n
			continue
		case "parameter_declaration":
			declared[parts[0].Text] = true
			e.parameter(parts, decorators, parameters)
		case "variable_declaration":
			e.names[parts[0].Text] = e.value(parts[1])
		case "resource_declaration":
			e.resource(n.Line, parts)
		case "output_declaration":
			e.Outputs[parts[0].Text] = e.value(parts[2])
		default:
			e.add("line %d: a %s is not evaluated", n.Line, n.Kind)
		}
		decorators = node{}
	}
	for name := range parameters {
		if !declared[name] {
			e.add("there is no parameter %s", name)
		}
	}
	return e.template
}

// parameter takes the value of a parameter, or its default, and checks it against the type and the decorators.
func (e evaluator) parameter(parts []node, decorators node, given map[string]any) {
	name, kind := parts[0].Text, parts[1].find("primitive_type")
	value, ok := given[name]
	if !ok && len(parts) == 3 {
		value, ok = e.value(parts[2]), true
	}
	if !ok {
		e.add("the parameter %s has no value", name)
	}
	if _, later := value.(unknown); !later && parts[1].named() != nil {
		if want := parts[1].named()[0].Text; len(kind) == 1 && typeName(value) != want {
			e.add("the parameter %s is %v: want %s", name, value, want)
		}
	}
	for _, d := range decorators.find("call_expression") {
		arguments := d.named()[1].named()
		if d.named()[0].Text != "allowed" {
			continue
		}
		if allowed := e.value(arguments[0]).([]any); !slices.Contains(allowed, value) {
			e.add("the parameter %s is %v: want one of %v", name, value, allowed)
		}
	}
	e.names[name] = value
}

func typeName(value any) string {
	switch value.(type) {
	case string:
		return "string"
	case float64:
		return "int"
	case bool:
		return "bool"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return fmt.Sprintf("%T", value)
}

func (e evaluator) resource(line int, parts []node) {
	name, kind := parts[0].Text, fmt.Sprint(e.value(parts[1]))
	e.each(parts[2], func(body map[string]any) {
		e.Resources = append(e.Resources, resource{Symbol: name, Type: kind, Line: line, Body: body})
	})
}

// each yields the objects of an expression with loops and conditions.
func (e evaluator) each(n node, yield func(map[string]any)) {
	parts := n.named()
	switch n.Kind {
	case "for_statement":
		items, ok := e.value(parts[1]).([]any)
		if !ok {
			e.add("line %d: the loop is over something that is no array", n.Line)
		}
		for _, item := range items {
			inner := evaluator{e.template, maps.Clone(e.names), e.symbols}
			inner.names[parts[0].Text] = item
			inner.each(parts[2], yield)
		}
	case "if_statement":
		if e.value(parts[0]) != false {
			e.each(parts[1], yield)
		}
	default:
		body, ok := e.value(n).(map[string]any)
		if !ok {
			e.add("line %d: no object", n.Line)
		}
		yield(body)
	}
}

// value computes an expression.
func (e evaluator) value(n node) any {
	parts := n.named()
	switch n.Kind {
	case "string":
		return e.text(n)
	case "number":
		number, err := strconv.ParseFloat(n.Text, 64)
		if err != nil {
			e.add("line %d: %v", n.Line, err)
		}
		return number
	case "boolean":
		return n.Text == "true"
	case "null":
		return nil
	case "array":
		items := []any{}
		for _, p := range parts {
			items = append(items, e.value(p))
		}
		return items
	case "object":
		return e.object(parts)
	case "identifier":
		return e.name(n)
	case "parenthesized_expression":
		return e.value(parts[0])
	case "member_expression":
		return memberOf(e.value(parts[0]), parts[1].Text)
	case "unary_expression":
		return not(e.value(parts[0]))
	case "binary_expression":
		return e.binary(n, e.value(parts[0]), e.value(parts[1]))
	case "ternary_expression":
		yes, no := e.value(parts[1]), e.value(parts[2])
		if e.value(parts[0]) == true {
			return yes
		}
		return no
	case "call_expression":
		return e.call(n.Line, parts[0].Text, parts[1].named())
	}
	e.add("line %d: a %s is not evaluated", n.Line, n.Kind)
	return nil
}

// text computes a string. What only Azure knows stays in braces.
func (e evaluator) text(n node) string {
	var b strings.Builder
	for _, p := range n.named() {
		switch p.Kind {
		case "interpolation":
			value := e.value(p.named()[0])
			if expression, ok := value.(unknown); ok {
				value = "{" + string(expression) + "}"
			}
			fmt.Fprint(&b, value)
		case "escape_sequence":
			b.WriteString(strings.TrimPrefix(p.Text, `\`))
		default:
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

func (e evaluator) object(members []node) map[string]any {
	object := map[string]any{}
	for _, m := range members {
		parts := m.named()
		name := parts[0].Text
		if parts[0].Kind == "string" {
			name = e.text(parts[0])
		}
		if _, twice := object[name]; twice {
			e.add("line %d: %s is there twice", m.Line, name)
		}
		object[name] = e.value(parts[1])
	}
	return object
}

func (e evaluator) name(n node) any {
	if value, ok := e.names[n.Text]; ok {
		return value
	}
	if !e.symbols[n.Text] {
		e.add("line %d: unknown name %s", n.Line, n.Text)
	}
	return unknown(n.Text)
}

func memberOf(object any, name string) any {
	switch o := object.(type) {
	case map[string]any:
		return o[name]
	case unknown:
		return unknown(string(o) + "." + name)
	}
	return nil
}

func not(value any) any {
	if yes, ok := value.(bool); ok {
		return !yes
	}
	return value
}

func (e evaluator) binary(n node, left, right any) any {
	for _, c := range n.Children {
		switch c.Kind {
		case "==":
			return left == right
		case "&&":
			return left == true && right == true
		}
	}
	e.add("line %d: this operator is not evaluated", n.Line)
	return nil
}

func (e evaluator) call(line int, function string, arguments []node) any {
	var values []any
	for _, a := range arguments {
		values = append(values, e.value(a))
	}
	switch {
	case function == "empty":
		switch v := values[0].(type) {
		case string:
			return v == ""
		case []any:
			return len(v) == 0
		case map[string]any:
			return len(v) == 0
		}
		return false
	case function == "concat":
		all := []any{}
		for _, v := range values {
			all = append(all, v.([]any)...)
		}
		return all
	case function == "union":
		all := map[string]any{}
		for _, v := range values {
			maps.Copy(all, v.(map[string]any))
		}
		return all
	case !slices.Contains(functions, function):
		e.add("line %d: unknown function %s", line, function)
	}
	return unknown(strings.TrimSuffix(fmt.Sprintln(append([]any{function + "("}, values...)...), "\n") + ")")
}
