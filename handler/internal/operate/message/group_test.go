package message_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/fold"
	"asynccaller/handler/internal/rules/envelope"
)

//go:embed testdata/keys.golden
var golden string

// TestKeys checks that the keys stay as they are.
func TestKeys(t *testing.T) {
	seen := map[message.By]int{}
	for line := range strings.Lines(golden) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 3 {
			t.Fatalf("line %q has not three fields", line)
		}
		by, err := message.ParseBy(fields[0], message.PoisonCriteria())
		if err != nil {
			t.Fatal(err)
		}
		seen[by]++
		if got := by.Key(messageFor(t, by, fields[1])); got != fields[2] {
			t.Errorf("%s of %q is %q, want %q", by, fields[1], got, fields[2])
		}
	}
	if len(seen) != 6 || seen[message.ByAnswer] < 20 || seen[message.ByPath] < 30 || seen[message.ByError] < 15 {
		t.Errorf("only these keys are held: %v", seen)
	}
}

func messageFor(t *testing.T, by message.By, input string) message.Message {
	t.Helper()
	m := message.Message{Reason: input}
	switch by {
	case message.ByReason, message.ByQueue, message.ByCause:
	case message.ByStatus:
		m.Status = envelope.StatusCode(mustInt(t, input))
	case message.ByHost:
		m.Host = input
	case message.ByPath:
		if input != "" {
			m.PathPattern = fold.Path(input)
		}
	case message.ByAnswer:
		if input != "" {
			m = read(answered(t, "", strings.ReplaceAll(input, `\n`, "\n")))
		}
	case message.ByError:
		fields := strings.SplitN(input, "|", 4)
		m = message.Message{Reason: fields[0], Error: fields[1], Detail: fields[3]}
		if fields[2] != "" {
			m.Status = envelope.StatusCode(mustInt(t, fields[2]))
		}
	}
	return m
}

func mustInt(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestParseBy(t *testing.T) {
	if by, err := message.ParseBy("Path", message.PoisonCriteria()); by != message.ByPath || err != nil {
		t.Errorf("got %q, %v", by, err)
	}
	_, err := message.ParseBy("co\x1blor", message.PoisonCriteria())
	if want := `cannot group by "co` + "\ufffd" +
		`lor": want reason, status, host, path, error or answer`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestParseGroup(t *testing.T) {
	for text, want := range map[string]message.Group{
		"reason=expired":       {By: message.ByReason, Key: "expired"},
		"answer=#3f9a01c2":     {By: message.ByAnswer, Digest: "3f9a01c2"},
		"answer=#3f9a01c":      {By: message.ByAnswer, Key: "#3f9a01c"},
		"answer=#3F9A01C2":     {By: message.ByAnswer, Key: "#3F9A01C2"},
		"path=/a=b/{n}":        {By: message.ByPath, Key: "/a=b/{n}"},
		"host=H.example.:0443": {By: message.ByHost, Key: "h.example:443"},
		"host=(no envelope)":   {By: message.ByHost, Key: "(no envelope)"},
		"status=(no answer)":   {By: message.ByStatus, Key: "(no answer)"},
		"error=line {n}: a= b": {By: message.ByError, Key: "line {n}: a= b"},
	} {
		if got, err := message.ParseGroup(text, message.PoisonCriteria()); got != want || err != nil {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"expired": `"expired" is not a group`, "reason=": "is not a group", "": "is not a group",
		"color=red": `cannot group by "color"`,
	} {
		if _, err := message.ParseGroup(text, message.PoisonCriteria()); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
}

// sameName returns two keys that no shell command has, whose digests begin alike.
func sameName() (first, second string) {
	seen := map[string]string{}
	for n := 0; ; n++ {
		key := "$" + strconv.Itoa(n)
		name := message.ByAnswer.Arguments()(key)
		if seen[name] != "" {
			return seen[name], key
		}
		seen[name] = key
	}
}

// TestGroupArguments: a key that a shell could read otherwise is named by its digest, which selects it and no other.
func TestGroupArguments(t *testing.T) {
	first, second := sameName()
	keys := []string{
		"order {n} is locked", "a,--yes", "caf\u00e9", first, second, "#3f9a01c2", "“(calc)“", "e\u0301",
		"it's", `a"b`, `a\b`, "`x`", "$x", "%x%", "a!b", "a&b", "a|b", "a<b", "a>b", "a^b", "a;b",
		"a\x01b", "a\nb", "a\u2028b",
	}
	argument := message.ByAnswer.Arguments(keys...)
	for i, key := range keys {
		word := argument(key)
		isQuoted := i < 3
		if strings.HasPrefix(word, "answer=#") == isQuoted {
			t.Errorf("%q is shown as %s", key, word)
		}
		hasWhole := len(word) == len("answer=#")+64
		if isLong := key == first || key == second; isLong != hasWhole {
			t.Errorf("%q is shown as %s", key, word)
		}
		if isQuoted {
			continue
		}
		group, err := message.ParseGroup(word, message.PoisonCriteria())
		for _, other := range keys {
			if matches := group.Match(message.Message{Answer: other}); matches != (other == key) || err != nil {
				t.Errorf("%s of %q: %t for %q, %v", word, key, matches, other, err)
			}
		}
	}
	if got := message.ByAnswer.Arguments()("it's"); got != argument("it's") {
		t.Errorf("another reader shows %s", got)
	}
}

func TestGroups(t *testing.T) {
	groups := message.NewGroups(message.ByReason)
	at := func(minutes int) time.Time { return inserted.Add(time.Duration(minutes) * time.Minute) }
	for i, reason := range []string{"rejected", "expired", "malformed", "expired", "rejected", "expired"} {
		groups.Add(message.Message{ID: strconv.Itoa(i), Reason: reason, Since: at([]int{5, 3, 1, 9, 4, 6}[i])})
	}
	groups.Add(message.Message{ID: "6", Reason: "connect", Since: at(2)})
	got := ""
	for _, row := range groups.Result() {
		got += fmt.Sprintf("%d %s %s-%s %s\n", row.Count, row.Key, row.First.Format("04"), row.Last.Format("04"),
			row.Sample.ID)
	}
	want := "3 expired 03-09 3\n2 rejected 04-05 0\n1 connect 02-02 6\n1 malformed 01-01 2\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if printed, err := json.Marshal(groups.Result()[0]); err != nil ||
		!strings.HasPrefix(string(printed), `{"key":"expired","count":3,"first":"`) {
		t.Errorf("printed as %s, %v", printed, err)
	}
	if printed, err := json.Marshal(message.NewGroups(message.ByHost).Result()); string(printed) != "[]" || err != nil {
		t.Errorf("no groups are printed as %s, %v", printed, err)
	}
}

// TestGroupsHostile checks that messages with ever new keys use no more memory than 10,000 groups.
func TestGroupsHostile(t *testing.T) {
	groups := message.NewGroups(message.ByReason)
	for i := range 12_000 {
		groups.Add(message.Message{Reason: fmt.Sprint("reason", i)})
	}
	groups.Add(message.Message{Reason: "reason0"})
	rows := groups.Result()
	if len(rows) != 10_001 {
		t.Fatalf("%d groups", len(rows))
	}
	if rows[0].Key != "(others)" || rows[0].Count != 2_000 || rows[1].Key != "reason0" || rows[1].Count != 2 {
		t.Errorf("largest groups %s: %d, %s: %d", rows[0].Key, rows[0].Count, rows[1].Key, rows[1].Count)
	}
}
