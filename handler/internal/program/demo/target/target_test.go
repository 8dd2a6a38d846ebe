package target

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestForget: a target that runs long follows the scripts of the latest request ids, and remembers no more.
func TestForget(t *testing.T) {
	target, err := Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	target.Forget(3)
	call := func(id string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target.URL("503,200"),
			strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Idempotency-Key", id)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	for _, c := range []struct {
		id   string
		want int
	}{
		{"a", 503},
		{"a", 200},
		{"a", 200},
		{"b", 503},
		{"c", 503},
		{"b", 200},
		{"d", 503},
		{"d", 200},
		{"a", 503}, // forgotten
	} {
		if got := call(c.id); got != c.want {
			t.Errorf("a call of %s was answered %d, want %d", c.id, got, c.want)
		}
	}
	for n := range 100 {
		call(fmt.Sprint(n) + strings.Repeat("x", 10_000))
	}
	if len(target.seen) != 3 || len(target.ids) != 3 || len(target.calls) != 0 || len(target.ids[0]) > maxID {
		t.Errorf("%d counts, %d ids and %d calls are remembered", len(target.seen), len(target.ids), len(target.calls))
	}
}
