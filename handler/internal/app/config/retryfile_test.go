package config_test

import (
	"fmt"
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

// TestOwnPolicies: settings and envelopes can name a policy of retry.json, which keeps to the shortest wait.
func TestOwnPolicies(t *testing.T) {
	dir := withRetryFile(t, `{"patient":{"schedule":["1m","1h"],"maxAttempts":4},"fast":{"schedule":["0s"]}}`)
	for name, want := range map[string]time.Duration{"patient": time.Minute, "fast": time.Second} {
		loaded, err := config.LoadApp(dir, []string{"ASYNC_CALLER_RETRY=" + name}, nil)
		if err != nil {
			t.Fatal(err)
		}
		policy := loaded.Rules.Retry
		isComplete := name != "patient" || policy.MaxAttempts == 4
		if d := policy.Delay(1, 0); policy.Name != name || d != want || !isComplete {
			t.Errorf("policy %s waits %v, %d attempts", policy.Name, d, policy.MaxAttempts)
		}
		if _, err := loaded.Rules.Policies.Named(name); err != nil {
			t.Errorf("an envelope cannot ask for it: %v", err)
		}
	}
}

// TestRetryFileProblems: every problem on a line of its own that names the file, the policy, the parameter.
func TestRetryFileProblems(t *testing.T) {
	dir := withRetryFile(t, `{"a":{"factor":0.5},"b":{"schedule":[]},"io":{"maxAttempts":3},"c d":{},
		"e":{"baseDelay":"2h","maxDelay":"1h"},"f":"linear","g":{"baseDelay":-1}}`)
	_, err := config.LoadApp(dir, nil, nil)
	wantLines(t, err, "retry.json: a.factor: ", "retry.json: b.schedule: ", "retry.json: io: ", "retry.json: c…: ",
		"retry.json: e.maxDelay: ", "retry.json: f: unknown policy", "retry.json: g.baseDelay: ")
	_, err = config.LoadApp(withRetryFile(t, `{`), nil, nil)
	wantLines(t, err, "retry.json: not JSON: line 1")
}

// wantLines checks that an error has one line for each beginning.
func wantLines(t *testing.T, err error, beginnings ...string) {
	t.Helper()
	lines := strings.Split(fmt.Sprint(err), "\n")
	for i, want := range beginnings {
		if len(lines) != len(beginnings) || !strings.HasPrefix(lines[i], want) {
			t.Fatalf("line %d of %d is not about %q:\n%v", i+1, len(lines), want, err)
		}
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
	wantLines(t, err, "retry.json: io: ", "ASYNC_CALLER_GIVE_UP: ", `targets.json: "a.example": timeout: `,
		`targets.json: "a.example": headers.X-A: the environment variable UNSET `)
}

// TestFilesOfEditors checks that a byte order mark in a file of the app does no harm, and that UTF-16 is named.
func TestFilesOfEditors(t *testing.T) {
	marked, wide := t.TempDir(), t.TempDir()
	var want []string
	for _, file := range []struct{ name, content string }{
		{config.RetryFile, `{"patient":{"baseDelay":"1m"}}`},
		{config.TargetsFile, `{"api.example.com":{"concurrency":2}}`},
		{config.RoutesFile, `{"orders-in":{"url":"https://shop.example.com/orders"}}`},
	} {
		mustWrite(t, marked, file.name, "\ufeff"+file.content)
		mustWrite(t, wide, file.name, "\xff\xfe"+strings.Join(strings.Split(file.content, ""), "\x00")+"\x00")
		want = append(want, file.name+": the text is UTF-16: save it as UTF-8")
	}
	_, err := config.LoadApp(wide, nil, nil)
	wantLines(t, err, want...)
	loaded, err := config.LoadApp(marked, []string{"ASYNC_CALLER_RETRY=patient"}, nil)
	profile := loaded.Rules.Profiles.For(&url.URL{Scheme: "https", Host: "api.example.com"})
	if err != nil || len(loaded.Routes) != 1 || profile.Concurrency != 2 {
		t.Errorf("routes %v, profile %+v, error %v", loaded.Routes, profile, err)
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
