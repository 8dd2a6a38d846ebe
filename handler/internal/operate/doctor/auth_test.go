package doctor

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"asynccaller/handler/internal/gates/credential"
	"asynccaller/handler/internal/rules/targets"
)

// TestAuthAdvice: waiting helps while the identity endpoint is busy or being updated. Otherwise the operator has to
// correct something.
func TestAuthAdvice(t *testing.T) {
	const waits, corrects = "wait: ", "correct auth in targets.json"
	for status, want := range map[int]string{
		400: corrects, 401: corrects, 403: corrects, 404: waits,
		408: waits, 410: waits, 429: waits, 500: waits, 503: waits,
	} {
		identity := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
		}))
		t.Cleanup(identity.Close)
		t.Cleanup(http.DefaultClient.CloseIdleConnections)
		t.Setenv("IDENTITY_ENDPOINT", identity.URL)
		t.Setenv("IDENTITY_HEADER", "x")
		dir := t.TempDir()
		for name, content := range map[string]string{
			"targets.json": `{"a.example":{"auth":{"managedIdentity":"api://a"}}}`, "local.settings.json": `{}`,
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var lines []Line
		Auth(t.Context(), dir, os.Environ(), func(l Line) { lines = append(lines, l) })
		if len(lines) != 1 || lines[0].State != Broken || !strings.HasPrefix(lines[0].Next, want) {
			t.Errorf("status %d: %+v, want %q", status, lines, want)
		}
	}
	server := targets.Credential{Kind: targets.OAuth2}
	for want, problem := range map[string]*credential.ProblemError{
		waits: {Text: "status 429"}, corrects: {Text: "invalid_client, status 400", ByOperator: true},
	} {
		if got := tokenAdvice(server, problem); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", problem.Text, got, want)
		}
	}
}
