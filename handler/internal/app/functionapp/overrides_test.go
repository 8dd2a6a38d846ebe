package functionapp_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/app/functionapp"
)

func TestArgumentOverridesHostJSON(t *testing.T) {
	loaded := app(nil).mustLoad(t, "AzureFunctionsJobHost__customHandler__description__arguments__0=other")
	if diff := cmp.Diff([]string{"other"}, loaded.Host.Handler.Arguments); diff != "" {
		t.Error(diff)
	}
}

func TestEmptyVariableAndLocalSettings(t *testing.T) {
	folder := trigger(t, `"work"`, `"%QUEUE%"`)
	folder["local.settings.json"] = `{"Values":{"QUEUE":"work"}}`
	dir := folder.write(t)
	environ, err := functionapp.WithLocalSettings(dir, []string{"QUEUE="})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := functionapp.Load(dir, environ); err != nil {
		t.Error(err)
	}
}

func TestQueueWithoutPoisonQueueIsRefused(t *testing.T) {
	for _, name := range []string{"orders-poison", strings.Repeat("q", 57)} {
		_, err := functionapp.Load(trigger(t, `"work"`, strconv.Quote(name)).write(t), nil)
		if err == nil || !strings.Contains(err.Error(), "has no poison queue") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestHostRetryIsRefused(t *testing.T) {
	for name, files := range map[string]files{
		"host.json": withHost(t, `"version": "2.0"`,
			`"version": "2.0", "retry": {"strategy": "fixedDelay", "maxRetryCount": 2}`),
		"Work/function.json": app(files{"Work/function.json": `{"retry":{"strategy":"fixedDelay"},"bindings":[` +
			validTrigger + `]}`}),
	} {
		if _, err := functionapp.Load(files.write(t), nil); err == nil ||
			!strings.HasPrefix(err.Error(), name+": retry: remove it") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
