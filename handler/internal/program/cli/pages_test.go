package cli

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"asynccaller/handler/internal/operate/call"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
)

const project = "../../../.."

// pages returns the Markdown pages of the project by their paths.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(project, func(path string, entry fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(entry.Name(), ".") && path != project
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (hidden || entry.Name() == "node_modules" || path == filepath.Join(project, "dist")):
			return fs.SkipDir
		case strings.HasSuffix(path, ".md"):
			text, err := os.ReadFile(path)
			name, _ := filepath.Rel(project, path)
			found[filepath.ToSlash(name)] = string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var (
	// span matches commands in a sentence, and block those in a block.
	span  = regexp.MustCompile("`((?:(?:dist/)?async-caller|make|go (?:test|run)) [^`]+)`")
	block = regexp.MustCompile(`(?m)^ {4}(?:\$ )?(.+)$`)
	// word matches a word of a command, as a shell reads it.
	word = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|\$\([^)]*\)|[^\s'"])+`)
	// quoted matches the parts of a word in quotes, and assignment what can precede a program.
	quoted     = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	assignment = regexp.MustCompile(`^\w+=`)
)

// calls returns the programs that a line of a shell starts, each with its arguments. It takes a file after "<" for a
// program.
func calls(line string) (found [][]string) {
	var call []string
	end := func() {
		if call != nil {
			found = append(found, call)
		}
		call = nil
	}
	for _, text := range word.FindAllString(line, -1) {
		if text == "#" {
			break
		}
		switch {
		case text == "2>&1":
		case slices.Contains([]string{"|", "&&", ";", "<"}, text):
			end()
		case call != nil || !assignment.MatchString(text):
			call = append(call, quoted.ReplaceAllStringFunc(text, func(q string) string { return q[1 : len(q)-1] }))
		}
	}
	end()
	return found
}

// reader checks commands in a working directory with the files that they name.
type reader struct {
	project, makefile string
	checked           int
}

func newReader(t *testing.T) *reader {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(project, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs(project)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	const envelope = `{"asyncCaller":1,"call":{"url":"https://example.com/"}}`
	for name, text := range map[string]string{
		"order.json": envelope, "message.json": envelope, "order.xml": envelope, "envelopes.jsonl": envelope,
		"poison.jsonl": envelope, "headers.txt": "Authorization: secret", "ids.txt": "order-4711",
		"orders.csv":  "orderId\norder-4711",
		"routes.json": `{"orders-in":{"url":"https://shop.example.com/orders"}}`,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &reader{project: root, makefile: string(makefile)}
}

// check reports what is wrong with the commands of a line. A sentence can mention a command without its arguments.
func (r *reader) check(t *testing.T, where, line string, mentioned bool) {
	t.Helper()
	for _, call := range calls(line) {
		var err error
		switch filepath.Base(call[0]) {
		case "async-caller":
			err = checkUsage(t, call[1:], mentioned)
		case "make":
			err = r.checkMake(call[1:])
		case "go":
			err = r.checkGo(call[1:])
		default:
			continue
		}
		r.checked++
		if err != nil {
			t.Errorf("%s: %s\n%v", where, line, err)
		}
	}
}

// checkUsage runs async-caller in a context that has ended: commands refuse wrong usage before they find that out.
func checkUsage(t *testing.T, args []string, mentioned bool) error {
	t.Helper()
	root := newRoot(Env{Stdout: io.Discard, Stderr: io.Discard})
	found, rest, err := root.Find(args)
	if err != nil || mentioned && len(rest) == 0 {
		return err
	}
	name := found.Name()
	if name == serveName || name == workName || name == demoName || name == "sync" { // they read the app first
		found.RunE = func(*cobra.Command, []string) error { return nil }
		root.SetArgs(args)
		return root.Execute()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stderr strings.Builder
	env := Env{
		Environ: []string{"AzureWebJobsStorage=UseDevelopmentStorage=true", "XDG_STATE_HOME=" + t.TempDir()},
		Stdin:   strings.NewReader(""), Stdout: io.Discard, Stderr: &stderr,
	}
	if Run(ctx, args, env) == exitUsage {
		return errors.New(stderr.String())
	}
	return nil
}

func (r *reader) checkMake(args []string) error {
	for _, arg := range args {
		variable, _, assigns := strings.Cut(arg, "=")
		if assigns && !strings.Contains(r.makefile, "$("+variable+")") {
			return fmt.Errorf("the Makefile does not use %s", variable)
		}
		if !assigns && !strings.Contains(r.makefile, "\n"+arg+":") {
			return fmt.Errorf("make has no target %s", arg)
		}
	}
	return nil
}

// checkGo checks that the packages of this project exist.
func (r *reader) checkGo(args []string) error {
	for _, arg := range args {
		if path, isPackage := strings.CutPrefix(strings.TrimSuffix(arg, "/..."), "./"); isPackage {
			_, err := os.Stat(filepath.Join(r.project, path))
			return err
		}
	}
	return nil
}

// TestPages checks the commands of every page: they exist, and have these flags and arguments.
func TestPages(t *testing.T) {
	all, r := pages(t), newReader(t)
	delete(all, "docs/commands.md") // TestCommandsPage
	for page, text := range all {
		text = strings.ReplaceAll(text, "\\\n", "")
		for _, match := range span.FindAllStringSubmatch(text, -1) {
			r.check(t, page, match[1], true)
		}
		for _, match := range block.FindAllStringSubmatch(text, -1) {
			r.check(t, page, match[1], false)
		}
	}
	if r.checked < 100 {
		t.Errorf("only %d commands in %d pages", r.checked, len(all))
	}
}

// TestPagesNeedAzure: a section with commands that tests cannot run says so, or the beginning of its page does.
func TestPagesNeedAzure(t *testing.T) {
	azure := regexp.MustCompile(`(?m)^ {4}(?:\w+=\$\()?(?:azd?|docker|make deploy) `)
	for page, text := range pages(t) {
		head, sections, _ := strings.Cut(text, "\n## ")
		for section := range strings.SplitSeq(sections, "\n## ") {
			said := strings.Join(strings.Fields(head+" "+section), " ")
			if azure.MatchString(section) && !strings.Contains(said, "needs Azure") {
				name, _, _ := strings.Cut(section, "\n")
				t.Errorf("%s: neither %q nor the beginning of the page says that it needs Azure", page, name)
			}
		}
	}
}

// TestExamples checks the commands in the help texts.
func TestExamples(t *testing.T) {
	r := newReader(t)
	for _, documented := range withSubcommands(newRoot(Env{})) {
		example := strings.ReplaceAll(documented.Example, "--output poison.jsonl", "--output new.jsonl") // to import it
		for line := range strings.Lines(example) {
			r.check(t, documented.CommandPath(), line, false)
			if !strings.Contains(line, documented.CommandPath()) && documented.Name() != serveName {
				t.Errorf("%s: the example is of another command: %s", documented.CommandPath(), line)
			}
		}
	}
}

// TestPrintedCommands checks the commands that the product prints in errors, notes and next steps: each runs as it is
// printed, with a value for each placeholder.
func TestPrintedCommands(t *testing.T) {
	var files []string
	err := filepath.WalkDir(filepath.Join(project, "handler", "internal"),
		func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				files = append(files, path)
			}
			return err
		})
	if err != nil {
		t.Fatal(err)
	}
	printed := map[string]string{} // with the file
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			expression, ok := node.(ast.Expr)
			if !ok {
				return true
			}
			text, isText := textOf(expression)
			for _, match := range span.FindAllStringSubmatch(text, -1) {
				printed[match[1]] = path
			}
			return !isText
		})
	}
	values := strings.NewReplacer(
		"caller %s", "caller poison", "--group %s", "--group error=x", "--queue %s", "--queue async-caller-poison",
		"--reason %s", "--reason undecodable",
		"expedite %s", "expedite "+waitingFilter("t.example", decision.Paused), "requeue %s", "requeue --all",
		"--queue QUEUE FILE", "--queue orders-in order.xml", "QUEUE", "async-caller",
		"HOST", "t.example", "TARGET", "t.example", "URL", "https://t.example/", "%s", "20260131-120000-requeue-ab12",
	)
	r := newReader(t)
	for command, path := range printed {
		r.check(t, path, values.Replace(command), false)
	}
	if r.checked < 25 {
		t.Errorf("only %d commands", r.checked)
	}
}

// textOf returns the text of a string literal, or of a sum of them in which other operands are %s.
func textOf(expression ast.Expr) (text string, ok bool) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, isLeft := textOf(e.X)
		right, isRight := textOf(e.Y)
		if !isLeft {
			left = "%s"
		}
		if !isRight {
			right = "%s"
		}
		return left + right, e.Op == token.ADD && (isLeft || isRight)
	}
	return "", false
}

// TestCommandsPage compares docs/commands.md with the commands.
func TestCommandsPage(t *testing.T) {
	page := pages(t)["docs/commands.md"]
	got, want := map[string]string{}, map[string]string{}
	rows := regexp.MustCompile("(?m)^\\| `(async-caller [^`]*)` \\| (.*) \\|$")
	for _, row := range rows.FindAllStringSubmatch(page, -1) {
		got[row[1]] = row[2]
	}
	for _, command := range withSubcommands(newRoot(Env{})) {
		if !command.HasSubCommands() {
			want[command.Parent().CommandPath()+" "+command.Use] = command.Short
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/commands.md differs from the commands (-code +page):\n%s", diff)
	}
	_, table, _ := strings.Cut(page, "### JSON of a call\n")
	for _, object := range []any{call.Page{}, listedMessage{}} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(object)) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "" && name != "-" && !strings.Contains(table, "`"+name+"`") {
				t.Errorf("docs/commands.md does not have the member %s of a call", name)
			}
		}
	}
	for code, meaning := range map[int]string{
		exitDone: "done", exitFailed: "failed", exitUsage: "wrong usage or configuration",
		exitNothing: "nothing matched",
		exitPartly:  "partly done",
	} {
		if row := fmt.Sprintf("\n| %d | %s |\n", code, meaning); !strings.Contains(page, row) {
			t.Errorf("docs/commands.md does not have the exit code%s", row)
		}
	}
}

// TestNexusPage: the message of docs/nexus.md is sent without a warning, and makes the call of the page.
func TestNexusPage(t *testing.T) {
	_, text, _ := strings.Cut(pages(t)["docs/nexus.md"], "send it:\n\n")
	text, _, _ = strings.Cut(text, "\n\n")
	var stdout, stderr strings.Builder
	env := Env{Stdin: strings.NewReader(text), Stdout: &stdout, Stderr: &stderr}
	code := Run(t.Context(), []string{"send", "--dry-run", "--json", "-", "--app", t.TempDir()}, env)
	if code != exitDone || stderr.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	e, err := envelope.Parse([]byte(strings.TrimSpace(stdout.String())))
	if err != nil || e.Format() != envelope.FormatNexus || e.Call.URL != "https://example.com/orders" ||
		string(e.Call.Body.Bytes()) != `{"id": 42}` || e.Tenant.Organization != "acme" || e.Deadline.IsZero() {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestFlagsInPages checks the flags that the pages name in their sentences.
func TestFlagsInPages(t *testing.T) {
	known := map[string]bool{"help": true}
	others := []string{"skipApiVersionCheck", "preview", "from-package", "wait", "name"} // of Azurite, azd and az
	for _, other := range others {
		known[other] = true
	}
	for _, command := range withSubcommands(newRoot(Env{})) {
		command.Flags().VisitAll(func(flag *pflag.Flag) { known[flag.Name] = true })
		command.PersistentFlags().VisitAll(func(flag *pflag.Flag) { known[flag.Name] = true })
	}
	for page, text := range pages(t) {
		for _, span := range regexp.MustCompile("`[^`\n]*--[^`\n]*`").FindAllString(text, -1) {
			for _, flag := range regexp.MustCompile(`[ \x60]--([a-zA-Z][\w-]*)`).FindAllStringSubmatch(span, -1) {
				if !known[flag[1]] {
					t.Errorf("%s: %s: there is no flag --%s", page, span, flag[1])
				}
			}
		}
	}
}
