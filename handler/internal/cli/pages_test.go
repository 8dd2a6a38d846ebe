package cli

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const project = "../../.."

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

// command is a command line of a page.
type command struct {
	line string
	// section is the text of the section that has it, and the beginning of the page.
	section string
	// mentioned says that it is in a sentence.
	mentioned bool
}

var (
	// inline matches commands in a sentence.
	inline = regexp.MustCompile("`((?:(?:dist/)?async-caller|make|go (?:test|run)|azd?|docker|curl|npm) [^`]+)`")
	// notCommands matches the beginnings of blocks that are JSON, queries, settings, output, formulas, drawings and code.
	notCommands = regexp.MustCompile(`^ *([{"]|traces |[A-Z_]{3}|\d|attempts/s |Functions host ──|host ──|func \(|schedules )`)
	// begins matches the beginnings of blocks that are commands.
	begins = regexp.MustCompile(`^(\$ |# |\w+=|[a-z][\w./-]* |\.\./)`)
)

// commands returns the command lines of a page, and what it has in blocks that is of no known kind. A line of a block is a
// command if it begins with "$ ", or if no line of the block does.
func commands(page string) (found []command, problems []string) {
	head, _, _ := strings.Cut(page, "\n## ")
	for section := range strings.SplitSeq(page, "\n## ") {
		add := func(line string, mentioned bool) {
			found = append(found, command{line, head + "\n" + section, mentioned})
		}
		for _, match := range inline.FindAllStringSubmatch(section, -1) {
			add(strings.ReplaceAll(match[1], "\n", " "), true)
		}
		for _, block := range blocks(section) {
			prompts := strings.Contains("\n"+block, "\n$ ")
			if first, _, _ := strings.Cut(block, "\n"); !prompts && !begins.MatchString(first) || notCommands.MatchString(first) {
				if !notCommands.MatchString(first) {
					problems = append(problems, "neither a command nor JSON, a query or the like: "+first)
				}
				continue
			}
			for line := range strings.SplitSeq(strings.ReplaceAll(block, "\\\n", ""), "\n") {
				text, prompt := strings.CutPrefix(line, "$ ")
				if prompt || !prompts && strings.TrimSpace(line) != "" {
					add(text, false)
				}
			}
		}
	}
	return found, problems
}

// languages are those of fenced blocks that are no commands.
var languages = []string{"go", "js", "csharp", "python", "json", "text"}

// blocks returns the indented blocks of a section, and the fenced ones that can be commands.
func blocks(section string) (found []string) {
	var block []string
	fence, fenced, before := "", false, ""
	for line := range strings.SplitSeq(section+"\n\n.", "\n") {
		if rest, tab := strings.CutPrefix(line, "\t"); tab {
			line = "    " + rest
		}
		language, isFence := strings.CutPrefix(line, "```")
		switch code, indented := strings.CutPrefix(line, "    "); {
		case isFence && !fenced:
			fence, fenced = language, true
		case isFence:
			fenced = false
		case fenced:
			if !slices.Contains(languages, fence) {
				block = append(block, line)
				continue
			}
		case indented && (before == "" || len(block) > 0), line == "" && len(block) > 0:
			block = append(block, code)
			continue
		}
		if len(block) > 0 {
			found = append(found, strings.TrimSpace(strings.Join(block, "\n")))
			block = nil
		}
		before = line
	}
	return found
}

// needsAzure says that commands need Azure.
const needsAzure = "needs Azure"

// programs are what commands may run, and what the section must say if that needs something that the tests do not have.
var programs = map[string]string{
	"async-caller": "", "make": "", "go": "",
	"az": needsAzure, "azd": needsAzure, "docker": needsAzure, "func": needsAzure,
	"rm": "", "unzip": "", "grep": "", "jq": "", "sort": "", "uniq": "",
	// The tests in handler/tools/quickstart run the commands of docs/senders.md, or check what they install.
	"npm": senders, "node": senders, "dotnet": senders, "pip": senders, "python": senders,
}

const senders = "# Sending from a program"

// targetsThatNeed are targets of the Makefile that tests cannot run.
var targetsThatNeed = map[string]string{"deploy": needsAzure, "start": "needs Azure Functions Core Tools"}

// shell runs commands with programs that record their arguments instead of doing something.
type shell struct {
	// project is the project's folder, and makefile its Makefile.
	project, makefile string
	// folder is the working directory of the commands, and record what they write.
	folder, record string
}

func newShell(t *testing.T) shell {
	t.Helper()
	folder, err := filepath.Abs(project)
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join(folder, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	s := shell{folder, string(makefile), filepath.Join(root, "project"), filepath.Join(root, "record")}
	script := []byte("#!/bin/sh\nprintf '%s\\0' \"$#\" \"${0##*/}\" \"$@\" >> '" + s.record + "'\n")
	for _, folder := range []string{"bin", "dist", "project/dist", "project/deploy"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o750); err != nil {
			t.Fatal(err)
		}
		for program := range programs {
			if err := os.WriteFile(filepath.Join(root, folder, program), script, 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	const envelope = `{"asyncCaller":1,"call":{"url":"https://example.com/"}}`
	for name, content := range map[string]string{
		"order.json": envelope, "message.json": envelope, "envelopes.jsonl": envelope, "order.xml": envelope,
		"poison.jsonl": envelope, "headers.txt": "Authorization: secret",
	} {
		if err := os.WriteFile(filepath.Join(s.folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(s.folder)
	return s
}

// run returns the program and arguments of each program that a command starts.
func (s shell) run(t *testing.T, line string) (calls [][]string, err error) {
	t.Helper()
	_ = os.Remove(s.record)
	command := exec.CommandContext(t.Context(), "/bin/sh", "-c", line)
	command.Dir, command.Env = s.folder, []string{"PATH=" + filepath.Join(s.folder, "..", "bin")}
	if output, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, output)
	}
	text, _ := os.ReadFile(s.record) // a cd leaves none
	fields := strings.Split(string(text), "\x00")
	for len(fields) > 1 {
		n, err := strconv.Atoi(fields[0])
		if err != nil {
			return nil, err
		}
		calls, fields = append(calls, fields[1:n+2]), fields[n+2:]
	}
	return calls, nil
}

// check returns what is wrong with a command.
func (c command) check(t *testing.T, s shell) error {
	t.Helper()
	calls, err := s.run(t, c.line)
	if err != nil {
		return err
	}
	for _, call := range calls {
		program, args := call[0], call[1:]
		if text := programs[program]; !c.says(text) {
			return fmt.Errorf("%s: neither the section nor the beginning of the page says %q", program, text)
		}
		switch program {
		case "async-caller":
			err = c.checkUsage(t, args)
		case "make":
			err = c.checkMake(s.makefile, args)
		case "go":
			err = c.checkGo(s.project, args)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c command) says(text string) bool {
	section := strings.Join(strings.Fields(c.section), " ")
	if text == needsAzure {
		section = strings.ReplaceAll(section, "needs Azure Functions", "")
	}
	return strings.Contains(section, text)
}

// checkUsage runs async-caller in a context that has ended: commands refuse wrong usage before they find that out. A sentence
// can name a command without its arguments.
func (c command) checkUsage(t *testing.T, args []string) error {
	t.Helper()
	root := newRoot(Env{Stdout: io.Discard, Stderr: io.Discard})
	found, rest, err := root.Find(args)
	if err != nil || c.mentioned && len(rest) == 0 {
		return err
	}
	if name := found.Name(); name == serveName || name == "host" { // they read the settings of the app first
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
		return fmt.Errorf("%s", &stderr)
	}
	return nil
}

func (c command) checkMake(makefile string, args []string) error {
	for _, arg := range args {
		variable, _, assigns := strings.Cut(arg, "=")
		switch {
		case assigns && !strings.Contains(makefile, "$("+variable+")"):
			return fmt.Errorf("the Makefile does not use %s", variable)
		case !assigns && !strings.Contains(makefile, "\n"+arg+":"):
			return fmt.Errorf("make has no target %s", arg)
		case !c.says(targetsThatNeed[arg]):
			return fmt.Errorf("make %s: neither the section nor the beginning of the page says %q", arg, targetsThatNeed[arg])
		}
	}
	return nil
}

// checkGo checks the packages of a go command. Those of docs/senders.md are about a program of the reader's own.
func (c command) checkGo(project string, args []string) error {
	for _, arg := range args {
		path, found := strings.CutPrefix(strings.TrimSuffix(arg, "/..."), "./")
		if _, err := os.Stat(filepath.Join(project, path)); found && err != nil {
			return err
		} else if found {
			return nil
		}
	}
	if !c.says(senders) {
		return fmt.Errorf("go %v has no package of this project", args)
	}
	return nil
}

// TestPages checks every command of every page: it exists, it has these flags and arguments, and if tests cannot run it, the page
// says what it needs.
func TestPages(t *testing.T) {
	all, s, total := pages(t), newShell(t), 0
	delete(all, "docs/commands.md") // TestCommandsPage
	for _, page := range slices.Sorted(maps.Keys(all)) {
		found, problems := commands(all[page])
		for _, problem := range problems {
			t.Errorf("%s: %s", page, problem)
		}
		for _, c := range found {
			if err := c.check(t, s); err != nil {
				t.Errorf("%s: %s\n%v", page, c.line, err)
			}
		}
		total += len(found)
	}
	if total < 120 {
		t.Errorf("only %d commands in %d pages", total, len(all))
	}
}

// TestExamples checks the commands in the help texts.
func TestExamples(t *testing.T) {
	s := newShell(t)
	for _, documented := range withSubcommands(newRoot(Env{})) {
		for line := range strings.Lines(strings.ReplaceAll(documented.Example, "--output poison.jsonl", "--output new.jsonl")) { // poison.jsonl exists, to import it
			if err := (command{line: line, section: documented.Long + line + needsAzure}).check(t, s); err != nil {
				t.Errorf("%s: %s%v", documented.CommandPath(), line, err)
			}
			if !strings.Contains(line, documented.CommandPath()) && documented.Name() != serveName {
				t.Errorf("%s: the example is of another command: %s", documented.CommandPath(), line)
			}
		}
	}
}

// TestMistakesInPages checks that a wrong command is found wherever it is.
func TestMistakesInPages(t *testing.T) {
	s := newShell(t)
	for text, want := range map[string]string{
		"\n    $ async-caller poison lst\n":                          `unknown command "lst"`,
		"\n    async-caller status --wach  # look\n":                 "unknown flag: --wach",
		"\n    x=1 dist/async-caller poison show\n":                  "accepts 1 arg(s)",
		"\n    async-caller poison list \\\n      --status many\n":   "--status: ",
		"\n    async-caller send --dry-run --url x | cat\n":          "cat: ",
		"\n```sh\nasync-caller scheduled expedite --canary 3\n```\n": "select messages by ids or filters",
		"\n    async-caller status && async-caller statsu\n":         `unknown command "statsu"`,
		"Use `async-caller poison requeue 1 --rate fast`.":           "--rate: ",
		"\n```bash\nasync-caller stats\n```\n":                       `unknown command "stats"`,
		"\n\tasync-caller stats\n":                                   `unknown command "stats"`,
		"Use `curl https://example.com/`.":                           "curl: ",
		"Use `make dmeo`.":                                           "make has no target dmeo",
		"\n    make bench FLAG=-short\n":                             "the Makefile does not use FLAG",
		"\n    make start\n":                                         `says "needs Azure Functions Core Tools"`,
		"It needs Azure Functions Core Tools.\n\n    make deploy\n":  `says "needs Azure"`,
		"\n    az group list\n\n## Other\n\nThis needs Azure.\n":     `says "needs Azure"`,
		"Use `azd up`.":                                                  `says "needs Azure"`,
		"\n    curl https://example.com/\n":                              "curl: ",
		"\n    npm install async-caller\n":                               "Sending from a program",
		"\n    go test ./handler/none\n":                                 "no such file",
		"\n    go get example.com/x\n":                                   "has no package of this project",
		"\n    serve: async-caller\n":                                    "neither a command nor JSON",
		"\n    $ export A=$(async-caller version --jsn)\n":               "unknown flag: --jsn",
		"\n    $ async-caller host --lease\n    async-caller nonsense\n": "flag needs an argument",
	} {
		found, problems := commands("# Page\n\n" + text)
		for _, c := range found {
			if err := c.check(t, s); err != nil {
				problems = append(problems, err.Error())
			}
		}
		if len(problems) != 1 || !strings.Contains(problems[0], want) {
			t.Errorf("%s\ngot %q, want %q", text, problems, want)
		}
	}
}

// TestCommandsPage compares docs/commands.md with the commands.
func TestCommandsPage(t *testing.T) {
	page := pages(t)["docs/commands.md"]
	got, want := map[string]string{}, map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(async-caller [^`]*)` \\| (.*) \\|$").FindAllStringSubmatch(page, -1) {
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
	for code, meaning := range map[int]string{exitDone: "done", exitFailed: "failed", exitUsage: "wrong usage or configuration", exitNothing: "nothing matched", exitPartly: "partly done"} {
		if row := fmt.Sprintf("\n| %d | %s |\n", code, meaning); !strings.Contains(page, row) {
			t.Errorf("docs/commands.md does not have the exit code%s", row)
		}
	}
}

// TestFlagsInPages checks the flags that the pages name in their sentences.
func TestFlagsInPages(t *testing.T) {
	known := map[string]bool{"help": true, "skipApiVersionCheck": true, "preview": true, "from-package": true} // of Azurite and azd
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
