package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAzureSmoke: the script drills until the app delivers, and deletes what it has made, also if a step fails. The
// environment of azd that was selected stays so.
func TestAzureSmoke(t *testing.T) {
	made := []string{
		"az group create --subscription S --name NAME --location westeurope --output none",
		"azd env new NAME --subscription S --location westeurope --no-prompt",
		"azd env set -e NAME AZURE_RESOURCE_GROUP NAME", "azd env set -e NAME PRIVATE_STORAGE false",
		"azd up -e NAME --no-prompt",
	}
	drilled := []string{
		"azd env get-value -e NAME accountName", "unzip -q ROOT/dist/async-caller.zip -d FOLDER/app",
		"async-caller drill --app FOLDER/app of acme", "sleep 30", "async-caller drill --app FOLDER/app of acme",
	}
	const acme = "--subscription S --resource-group NAME --name acme "
	posted := []string{
		"azd env get-value -e NAME appName", "az functionapp show " + acme + "--query defaultHostName -o tsv",
		"az functionapp function keys set " + acme + "--function-name AC-in-smoke-in --key-name smoke --query value " +
			"-o tsv",
		"curl --fail-with-body --silent --show-error --retry 5 --retry-all-errors " +
			"https://acme.example/api/in/smoke-in -H x-functions-key: KEY -H Content-Type: text/plain " +
			"-H Idempotency-Key: smoke --data-binary hello",
	}
	const workersDrill = "async-caller drill --app FOLDER/app " +
		"--url https://login.microsoftonline.com/common/.well-known/openid-configuration of acme"
	worker := append(made[:3:3], "azd env set -e NAME IMAGE example/worker:1", "azd provision -e NAME --no-prompt",
		"make -C ROOT build package", drilled[0], drilled[1], workersDrill, "sleep 30", workersDrill)
	deleted := "az group delete --subscription S --name NAME --yes"
	for name, c := range map[string]struct {
		kind, fails string // an argument, a command
		want        []string
	}{
		"delivers":             {"", "", append(slices.Concat(made, drilled, posted), deleted)},
		"not_created":          {"", "az group create", append(made[:1:1], deleted)},
		"not_up":               {"", "azd up", append(slices.Clip(made), deleted)},
		"worker_delivers":      {"worker", "", append(slices.Clip(worker), deleted)},
		"worker_not_deployed":  {"worker", "azd provision", append(worker[:5:5], deleted)},
		"worker_without_image": {"worker", "no image", nil},
		"other":                {"other", "usage", nil},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			fake := `#!/bin/sh
call="$(basename "$0") $*"
[ "$1" != drill ] || call="$call of $AzureWebJobsStorage__accountName"
echo "$call" >> "$CALLS"
case "$call" in
"azd env new "*) mkdir -p ".azure/$3"; echo new > .azure/config.json ;;
"azd env get-value "*) echo acme ;;
"az functionapp show "*) echo acme.example ;;
"az functionapp function keys set "*) echo KEY ;;
"async-caller drill "*) [ "$(grep -c "^async-caller drill" "$CALLS")" = 2 ] || exit 2 ;;
esac
[ -z "$FAILS" ] || case "$call" in "$FAILS"*) exit 1 ;; esac
`
			mustWrite(t, folder, map[string]string{
				".ci/azure-smoke":           mustRead(t, filepath.Join(projectRoot, ".ci", "azure-smoke")),
				"deploy/.azure/config.json": "prod", "deploy/worker/.azure/config.json": "prod",
				"dist/async-caller": fake, "bin/az": fake, "bin/azd": fake, "bin/unzip": fake, "bin/sleep": fake,
				"bin/make": fake, "bin/curl": fake, "calls": "",
			})
			for _, path := range []string{
				"dist/async-caller", "bin/az", "bin/azd", "bin/unzip", "bin/sleep", "bin/make", "bin/curl",
			} {
				if err := os.Chmod(filepath.Join(folder, path), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			calls := filepath.Join(folder, "calls")
			arguments := append([]string{filepath.Join(folder, ".ci", "azure-smoke")}, strings.Fields(c.kind)...)
			script := exec.CommandContext(t.Context(), "bash", arguments...)
			script.Env = append(os.Environ(),
				"PATH="+filepath.Join(folder, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"), "CALLS="+calls,
				"TMPDIR="+folder, "FAILS="+c.fails, "AZURE_SUBSCRIPTION_ID=S", "AZURE_LOCATION=westeurope")
			if c.fails != "no image" {
				script.Env = append(script.Env, "IMAGE=example/worker:1")
			}
			output, err := script.CombinedOutput()
			if (err != nil) != (c.fails != "") {
				t.Errorf("%v: %s", err, output)
			}
			got := mustRead(t, calls)
			_, group, isMade := strings.Cut(got, "--name ")
			group, _, _ = strings.Cut(group, " ")
			if isMade {
				got = strings.ReplaceAll(got, group, "NAME")
			}
			if made, _ := filepath.Glob(filepath.Join(folder, "tmp.*")); len(made) > 0 {
				t.Errorf("it leaves %v", made)
			}
			_, temporary, _ := strings.Cut(got, "-d ")
			temporary, _, _ = strings.Cut(temporary, "/app")
			if temporary != "" {
				got = strings.ReplaceAll(got, temporary, "FOLDER")
			}
			got = strings.ReplaceAll(got, folder, "ROOT")
			if diff := cmp.Diff(strings.Join(c.want, "\n"), strings.TrimSpace(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			for _, project := range []string{"deploy", "deploy/worker"} {
				selected := mustRead(t, filepath.Join(folder, project, ".azure", "config.json"))
				if selected != "prod" {
					t.Errorf("the environment %q of %s is selected", selected, project)
				}
			}
		})
	}
}
