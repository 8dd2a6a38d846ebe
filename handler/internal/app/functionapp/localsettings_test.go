package functionapp_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/app/functionapp"
)

func mustRead(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestWithLocalSettings(t *testing.T) {
	const settings = "local.settings.json"
	tests := map[string]struct {
		files         files
		environ, want []string
	}{
		"adds_by_name": {
			files{settings: `{"IsEncrypted":false,"Values":{"B":"2","A":"1=1"}}`},
			[]string{"HOME=/root"},
			[]string{"HOME=/root", "A=1=1", "B=2"},
		},
		"environment_wins": {
			files{settings: `{"Values":{"A":"file","B":"file"}}`},
			[]string{"A=set"},
			[]string{"A=set", "B=file"},
		},
		"environment_wins_in_any_case": {
			files{settings: `{"Values":{"AzureWebJobsStorage":"file"}}`},
			[]string{"AZUREWEBJOBSSTORAGE=set"},
			[]string{"AZUREWEBJOBSSTORAGE=set"},
		},
		"no_file":       {files{}, []string{"A=1"}, []string{"A=1"}},
		"no_values":     {files{settings: `{"IsEncrypted":false}`}, []string{"A=1"}, []string{"A=1"}},
		"with_comments": {files{settings: "\ufeff// mine\n{\"Values\":{\"A\":\"1\"/* one */}}"}, nil, []string{"A=1"}},
		"other_members": {
			files{settings: `{"Host":{"LocalHttpPort":7071},"ConnectionStrings":{},"Values":{"A":"1"}}`},
			nil,
			[]string{"A=1"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := functionapp.WithLocalSettings(test.files.write(t), test.environ)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("environment (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWithLocalSettingsKeepsEnvironment(t *testing.T) {
	environ := append(make([]string, 0, 8), "A=1")
	if _, err := functionapp.WithLocalSettings(files{"local.settings.json": `{"Values":{"B":"2"}}`}.write(t),
		environ); err != nil {
		t.Fatal(err)
	}
	if beyond := environ[:2][1]; beyond != "" {
		t.Errorf("%q was written into the caller's slice", beyond)
	}
}

func TestWithLocalSettingsProblems(t *testing.T) {
	tests := map[string]struct {
		content string
		want    []string
	}{
		"encrypted": {
			`{"IsEncrypted":true,"Values":{"AzureWebJobsStorage":"` + canary + `"}}`,
			[]string{"is encrypted", "func settings decrypt"},
		},
		"not_json":     {`{"Values":{"AzureWebJobsStorage":"` + canary + `"`, []string{"not JSON"}},
		"second_text":  {`{"Values":{"AzureWebJobsStorage":"` + canary + `"}} ` + canary, []string{"not JSON"}},
		"values_array": {`{"Values":["` + canary + `"]}`, []string{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := files{"local.settings.json": test.content}.write(t)
			_, err := functionapp.WithLocalSettings(dir, nil)
			wantProblem(t, err, append(test.want, filepath.Join(dir, "local.settings.json"))...)
		})
	}
}

// The shipped file starts the app with Azurite and needs no other setting.
func TestProjectsOwnLocalSettings(t *testing.T) {
	got, err := functionapp.WithLocalSettings("../../../..", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ASYNC_CALLER_TARGETS_ALLOW=127.0.0.0/8,::1,*", "AzureWebJobsStorage=UseDevelopmentStorage=true",
		"FUNCTIONS_WORKER_RUNTIME=custom",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}
