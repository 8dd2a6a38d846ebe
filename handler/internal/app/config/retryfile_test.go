package config_test

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/rules/retry"
)

func TestOwnPolicies(t *testing.T) {
	dir := withRetryFile(t, `{"patient":{"schedule":["1m","1h"],"maxAttempts":4}}`)
	loaded, err := config.LoadApp(dir, []string{"ASYNC_CALLER_RETRY=patient"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := loaded.Rules.Retry.Delay(1, 0); loaded.Rules.Retry.Name != "patient" || d != time.Minute ||
		loaded.Rules.Retry.MaxAttempts != 4 {
		t.Errorf("policy %s waits %v, %d attempts", loaded.Rules.Retry.Name, d, loaded.Rules.Retry.MaxAttempts)
	}
	if _, err := loaded.Rules.Policies.Named("patient"); err != nil {
		t.Errorf("an envelope cannot ask for it: %v", err)
	}
}

func TestNoRetryFile(t *testing.T) {
	loaded, err := config.LoadApp(t.TempDir(), nil, nil)
	if own := loaded.Rules.Policies; err != nil || len(own) != 0 {
		t.Errorf("got %v, %v", own, err)
	}
}

// TestRetryFileProblems: every problem on a line of its own that names the file, the policy, the parameter.
func TestRetryFileProblems(t *testing.T) {
	dir := withRetryFile(t, `{"a":{"factor":0.5},"b":{"schedule":[]},"io":{"maxAttempts":3},"c `+
		`d":{},"e":{"baseDelay":"2h","maxDelay":"1h"},"f":"linear","g":{"baseDelay":-1}}`)
	_, err := config.LoadApp(dir, nil, nil)
	if err == nil {
		t.Fatal("nothing was found wrong")
	}
	lines := strings.Split(err.Error(), "\n")
	for i, want := range []string{
		"retry.json: a.factor: ", "retry.json: b.schedule: ", "retry.json: io: ",
		"retry.json: c…: ", "retry.json: " +
			"e.maxDelay: ", "retry.json: f: unknown policy", "retry.json: g.baseDelay: ",
	} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
			t.Fatalf("line %d is not about %q:\n%v", i+1, want, err)
		}
	}
	if len(lines) != 7 {
		t.Errorf("%d lines:\n%v", len(lines), err)
	}
	if _, err := config.LoadApp(withRetryFile(t, `{`), nil, nil); err == nil ||
		!strings.HasPrefix(err.Error(), "retry.json: not JSON: line 1") {
		t.Errorf("got %v", err)
	}
}

func TestRetryLimits(t *testing.T) {
	loaded, err := config.Load([]string{
		"ASYNC_CALLER_RETRY_MIN_DELAY=2s", "ASYNC_CALLER_RETRY_MAX_DELAY=1h",
		"ASYNC_CALLER_RETRY_MAX_ATTEMPTS=9",
	}, nil)
	if want := (retry.Limits{MinDelay: 2 * time.Second, MaxDelay: time.Hour, MaxAttempts: 9}); err != nil ||
		loaded.Rules.Limits != want {
		t.Errorf("got %+v, %v", loaded.Rules.Limits, err)
	}
	for _, contradiction := range [][]string{
		{"ASYNC_CALLER_RETRY_MIN_DELAY=2h", "ASYNC_CALLER_RETRY_MAX_DELAY=1h"},
		{"ASYNC_CALLER_EXPIRATION=721h", "ASYNC_CALLER_MAX_DEADLINE=720h"},
	} {
		_, err := config.Load(contradiction, nil)
		for _, variable := range contradiction {
			if name, _, _ := strings.Cut(variable, "="); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%q: %v does not name %s", contradiction, err, name)
			}
		}
	}
}

// TestMinDelayForTheOperatorsPolicy: an operator's policy cannot make calls faster by mistake either.
func TestMinDelayForTheOperatorsPolicy(t *testing.T) {
	dir := withRetryFile(t, `{"fast":{"schedule":["0s"]}}`)
	loaded, err := config.LoadApp(dir, []string{"ASYNC_CALLER_RETRY=fast"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := loaded.Rules.Retry.Delay(1, 0); got != time.Second {
		t.Errorf("it waits %v, want a second", got)
	}
}

// TestLoadApp: targets.json can use the policies of retry.json and the environment, and its longest timeout must fit
// host.json.
func TestLoadApp(t *testing.T) {
	dir := withRetryFile(t, `{"patient":{"schedule":["1m"]}}`)
	mustWrite(t, dir, "targets.json",
		`{"a.example":{"retry":"patient","timeout":"4m","headers":{"Authorization":"$A_TOKEN"}}}`)
	getenv := func(name string) string { return map[string]string{"A_TOKEN": "Bearer x"}[name] }
	loaded, err := config.LoadApp(dir, nil, getenv)
	if err != nil {
		t.Fatal(err)
	}
	p := loaded.Rules.Profiles.For(&url.URL{Scheme: "https", Host: "a.example"})
	if p.Retry == nil || p.Retry.Name != "patient" || p.Headers.Get("Authorization") != "Bearer x" {
		t.Errorf("got %+v", p)
	}
	if loaded.Guard.JudgeShortName("a") == "" {
		t.Error("the short name of a target with a profile is not refused")
	}
	err = loaded.CheckTimeouts(functionapp.Host{FunctionTimeout: 5 * time.Minute})
	if err == nil || !strings.Contains(err.Error(),
		"set it above 5m0s, the sum of the longest timeout in targets.json, 4m0s, and 1m0s to settle") {
		t.Errorf("got %v", err)
	}
	if err := loaded.CheckTimeouts(functionapp.Host{FunctionTimeout: 301 * time.Second}); err != nil {
		t.Error(err)
	}
}

// TestAllFilesAreReported: the problems of all files at once, each on a line that names its file.
func TestAllFilesAreReported(t *testing.T) {
	dir := withRetryFile(t, `{"io":{}}`)
	mustWrite(t, dir, "targets.json", `{"a.example":{"timeout":0,"headers":{"X-A":"$UNSET"}}}`)
	_, err := config.LoadApp(dir, []string{"ASYNC_CALLER_GIVE_UP=never"}, func(string) string { return "" })
	if err == nil {
		t.Fatal("nothing was found wrong")
	}
	lines := strings.Split(err.Error(), "\n")
	for i, want := range []string{
		"retry.json: io: ", "ASYNC_CALLER_GIVE_UP: ", `targets.json: "a.example": timeout: `,
		`targets.json: "a.example": headers.X-A: the environment variable UNSET `,
	} {
		if len(lines) != 4 || !strings.HasPrefix(lines[i], want) {
			t.Fatalf("line %d is not about %q:\n%v", i+1, want, err)
		}
	}
}

// TestFilesOfEditors checks that a byte order mark in a file of the app does no harm, and that UTF-16 is named.
func TestFilesOfEditors(t *testing.T) {
	files := map[string]string{
		config.RetryFile:   `{"patient":{"baseDelay":"1m"}}`,
		config.TargetsFile: `{"api.example.com":{"concurrency":2}}`,
		config.RoutesFile:  `{"orders-in":{"url":"https://shop.example.com/orders"}}`,
	}
	marked := t.TempDir()
	for name, content := range files {
		mustWrite(t, marked, name, "\ufeff"+content)
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mustWrite(t, dir, name, "\xff\xfe"+strings.Join(strings.Split(content, ""), "\x00")+"\x00")
			_, err := config.LoadApp(dir, nil, nil)
			if err == nil || err.Error() != name+": the text is UTF-16: save it as UTF-8" {
				t.Errorf("error %v", err)
			}
		})
	}
	loaded, err := config.LoadApp(marked, []string{"ASYNC_CALLER_RETRY=patient"}, nil)
	if err != nil || len(loaded.Routes) != 1 {
		t.Errorf("routes %v, error %v", loaded.Routes, err)
	}
	target := &url.URL{Scheme: "https", Host: "api.example.com"}
	if profile := loaded.Rules.Profiles.For(target); profile.Concurrency != 2 {
		t.Errorf("profile %+v", profile)
	}
}

func withRetryFile(t *testing.T, content string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	mustWrite(t, dir, config.RetryFile, content)
	return dir
}

func mustWrite(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
