package demo

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/program/demo/target"
)

const project = "../../../.."

// TestReadme: the README shows what the demo prints if all is as expected.
func TestReadme(t *testing.T) {
	server, err := target.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	var rows []row
	for _, s := range (&Check{Target: server}).scenarios() {
		answers := strings.Fields(strings.Replace(s.answers, "...", "503", 1)) // three, as in the README
		rows = append(rows, row{scenario: s, attempts: len(answers), gotAnswers: s.answers, gotOutcome: s.outcome})
	}
	var printed strings.Builder
	report(&printed, rows)
	readme, err := os.ReadFile(project + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.ReplaceAll("\n"+strings.TrimSpace(printed.String()), "\n",
		"\n    "); !strings.Contains(string(readme), want) {
		t.Errorf("README does not have %s", want)
	}
}

// TestWriteApp: the app of the demo is the one that we ship.
func TestWriteApp(t *testing.T) {
	folder, shipped := t.TempDir(), t.TempDir()
	err := WriteApp(folder)
	if err == nil {
		err = os.CopyFS(shipped, os.DirFS(project+"/functions"))
	}
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.ReadFile(project + "/host.json")
	if err == nil {
		err = os.WriteFile(shipped+"/host.json", host, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := functionapp.LoadForWorker(folder, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := functionapp.LoadForWorker(shipped, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want.Timers {
		want.Timers[i].RunOnStartup = true // no heartbeat is awaited
	}
	if diff := cmp.Diff(want.Functions, got.Functions); diff != "" || len(got.Functions) == 0 {
		t.Errorf("functions (-shipped +demo):\n%s", diff)
	}
	if diff := cmp.Diff(want.Timers, got.Timers); diff != "" || len(got.Timers) == 0 {
		t.Errorf("timers (-shipped +demo):\n%s", diff)
	}
	if diff := cmp.Diff(string(host), hostFile); diff != "" {
		t.Errorf("host.json (-shipped +demo):\n%s", diff)
	}
}

func TestWithoutSettings(t *testing.T) {
	got := WithoutSettings([]string{
		"PATH=/bin", "ASYNC_CALLER_RETRY=x", "async_caller_retry=x", "AzureWebJobsStorage__accountName=x",
		"AzureWebJobsStorage=x", "AzureWebJobs.AC-standard.Disabled=1", "AZURE_FUNCTIONS_ENVIRONMENT=Production",
		"AzureFunctionsJobHost__functionTimeout=x", "FUNCTIONS_APP_ROOT_PATH=x", "HOME=/ASYNC_CALLER_",
	})
	if want := []string{"PATH=/bin", "HOME=/ASYNC_CALLER_"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
