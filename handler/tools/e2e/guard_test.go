package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestRefusedTargets checks that a message with a refused target becomes a dead letter that names the rule, and that
// the target gets no call, neither directly nor by a redirect.
func TestRefusedTargets(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	redirecting := httptest.NewServer(http.RedirectHandler("http://169.254.169.254/metadata/identity/oauth2/token?resource=x", http.StatusTemporaryRedirect))
	t.Cleanup(redirecting.Close)
	for id, url := range map[string]string{
		"metadata":   "http://169.254.169.254/metadata/instance",
		"mapped":     "http://[::ffff:169.254.169.254]/",
		"azure_host": "http://168.63.129.16/",
		"denied":     strings.Replace(f.target.URL("200"), "127.0.0.1", "localhost", 1),
		"redirected": redirecting.URL,
	} {
		f.putContent(fmt.Appendf(nil, `{"asyncCaller":1,"requestId":%q,"call":{"url":%q}}`, id, url))
	}
	f.put("allowed", "200", "")
	f.start([]string{"ASYNC_CALLER_TARGETS_DENY=localhost"})
	f.await("5 dead letters", func() bool { return f.count(poisonQueue) == 5 })
	f.awaitEmpty()

	for _, e := range f.deadLetters() {
		letter, _ := e["deadLetter"].(map[string]any)
		detail, _ := letter["detail"].(string)
		if letter["reason"] != "target_refused" || !strings.Contains(detail, "refused: ") {
			t.Errorf("%v: dead letter %v", e["requestId"], letter)
		}
	}
	if n := len(f.target.Calls("allowed")); n != 1 {
		t.Errorf("the allowed target got %d calls", n)
	}
	if n := len(f.target.Calls("denied")); n != 0 {
		t.Errorf("the denied target got %d calls", n)
	}
}
