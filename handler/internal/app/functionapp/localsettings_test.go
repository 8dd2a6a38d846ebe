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
	for name, test := range map[string]struct {
		content       string
		environ, want []string
	}{
		"adds_by_name":     {`{"Values":{"B":"2","A":"1=1"}}`, []string{"C=0"}, []string{"C=0", "A=1=1", "B=2"}},
		"environment_wins": {`{"Values":{"A":"file","B":"file"}}`, []string{"A=set"}, []string{"A=set", "B=file"}},
		"in_any_case":      {`{"Values":{"aB":"file"}}`, []string{"Ab=set"}, []string{"Ab=set"}},
		"unless_empty":     {`{"Values":{"A":"file"}}`, []string{"A="}, []string{"A=", "A=file"}},
		"no_file":          {``, []string{"A=1"}, []string{"A=1"}},
		"no_values":        {`{"IsEncrypted":false}`, []string{"A=1"}, []string{"A=1"}},
		"with_comments":    {"\ufeff// mine\n{\"Values\":{\"A\":\"1\"/* one */}}", nil, []string{"A=1"}},
		"other_members":    {`{"Host":{"LocalHttpPort":7071},"Values":{"A":"1"}}`, nil, []string{"A=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			folder := files{}
			if test.content != "" {
				folder["local.settings.json"] = test.content
			}
			got, err := functionapp.WithLocalSettings(folder.write(t), test.environ)
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Errorf("error %v, environment (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestWithLocalSettingsKeepsEnvironment(t *testing.T) {
	environ := append(make([]string, 0, 8), "A=1")
	_, err := functionapp.WithLocalSettings(files{"local.settings.json": `{"Values":{"B":"2"}}`}.write(t), environ)
	if beyond := environ[:2][1]; beyond != "" || err != nil {
		t.Errorf("error %v; %q was written into the caller's slice", err, beyond)
	}
}

func TestWithLocalSettingsProblems(t *testing.T) {
	for name, test := range map[string]struct{ content, want string }{
		"encrypted":    {`{"IsEncrypted":true,"Values":{"A":"` + canary + `"}}`, " is encrypted: run `func"},
		"not_json":     {`{"Values":{"A":"` + canary + `"`, ": not JSON"},
		"second_text":  {`{"Values":{"A":"` + canary + `"}} ` + canary, ": not JSON"},
		"values_array": {`{"Values":["` + canary + `"]}`, ": not JSON"},
		"utf16":        {wide(`{"Values":{"A":"1"}}`), ": the text is UTF-16: save it as UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := files{"local.settings.json": test.content}.write(t)
			_, err := functionapp.WithLocalSettings(dir, nil)
			wantProblem(t, err, filepath.Join(dir, "local.settings.json")+test.want)
		})
	}
}

// The shipped file starts the app with Azurite and needs no other setting.
func TestProjectsOwnLocalSettings(t *testing.T) {
	got, err := functionapp.WithLocalSettings("../../../..", nil)
	want := []string{
		"ASYNC_CALLER_TARGETS_ALLOW=127.0.0.0/8,::1,*", "AzureWebJobsStorage=UseDevelopmentStorage=true",
		"FUNCTIONS_WORKER_RUNTIME=custom",
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, settings (-want +got):\n%s", err, diff)
	}
}
