package azure

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// The limits of Table Storage on an entity, apart from that on a property
// (https://learn.microsoft.com/rest/api/storageservices/understanding-the-table-service-data-model).
const (
	maxEntityBytes = 1 << 20
	maxKeyBytes    = 1 << 10
)

// FuzzHistoryRow checks that each envelope that is accepted has a row that the table accepts, with its attempts.
func FuzzHistoryRow(f *testing.F) {
	attempt := `{"at":"2026-11-01T00:00:00Z","error":"` + strings.Repeat("<", 100) + `","tookMs":86400000},`
	trail := `[` + strings.Repeat(attempt, 99) + `{"at":"9999-12-31T23:59:59-23:00","error":"\u0000\u2028\""}]`
	long := strings.Repeat("\u2028<\\\"\u0001", 2_000)
	quotedLong, _ := json.Marshal(long)
	callOut := base64.StdEncoding.EncodeToString([]byte("GET /" + strings.Repeat("a-1b_", 2_000) +
		" HTTP/1.1\r\nHost: " + strings.Repeat("t.", 100) + "example\r\nX-Correlation-ID: 1\r\n\r\n"))
	for _, seed := range []string{
		`{"asyncCaller":1,"call":{"url":"https://t.example/a"}}`,
		`{"asyncCaller":1,"requestId":"/\\#?%","call":{"url":"https://t.example/a"},"trail":` + trail + `}`,
		`{"asyncCaller":1,"run":"/#?","createdAt":"0001-01-01T00:00:00Z","call":{"url":"https://t.example/"},` +
			`"trace":{"tracestate":` + string(quotedLong) + `}}`,
		`{"Organization":` + string(quotedLong) + `,"Environment":` + string(quotedLong) + `,"OriginalRequestId":` +
			string(quotedLong) + `,"Trail":` + trail + `,"RawRequest":{"Id":"1","CallOut":"` + callOut + `"}}`,
	} {
		f.Add([]byte(seed), "m1", "delivered")
	}
	now := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, content []byte, id, reason string) {
		e, err := envelope.Parse(content)
		if err == nil {
			err = e.Accept(now, "m1", 48<<10)
		}
		if err != nil {
			return
		}
		var tables memory.Tables
		h := history.New(&tables, 90*24*time.Hour, zerolog.Nop())
		entry := h.NewEntry(e, now)
		entry.Queue, entry.MessageID, entry.Reason = "async-caller", id, reason
		entry.Attempts, entry.Trail = e.Attempts, history.TrailOf(e.Trail)
		h.Acknowledge(t.Context(), entry, now)
		h.Close(time.Minute)
		names, err := tables.TableNames(t.Context(), history.TablePrefix)
		if err != nil || len(names) != 1 {
			t.Fatalf("tables %v, %v", names, err)
		}
		err = tables.Table(names[0]).List(t.Context(), storage.Query{}, func(entity storage.Entity) error {
			checkEntity(t, entity)
			content, _ := entity.Values["content"].([]byte)
			var details struct{ Trail []json.RawMessage }
			if err := json.Unmarshal(content, &details); err != nil || len(details.Trail) != len(e.Trail) {
				t.Errorf("%d of %d attempts, %v", len(details.Trail), len(e.Trail), err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// FuzzScheduledRow checks that a row with any texts is one that the table accepts.
func FuzzScheduledRow(f *testing.F) {
	f.Add("id", "\x00\ufffe<\xff", []byte("content"))
	f.Add("id", strings.Repeat("\u20ac", 30_000), make([]byte, 64<<10))
	f.Fuzz(func(t *testing.T, id, text string, content []byte) {
		entity, err := rows.Encode(record.Row{
			Key: storage.Key{ID: id}, PopReceipt: text, RequestID: text, TargetHost: text, PathPattern: text,
			Reason:       text,
			Organization: text, Environment: text, Cause: text, Answer: text,
			Content: content[:min(len(content), storage.MaxPropertyBytes)],
		})
		if err != nil {
			t.Error(err)
		}
		checkEntity(t, entity)
	})
}

func checkEntity(t *testing.T, entity storage.Entity) {
	t.Helper()
	encoded := encode(entity)
	if len(encoded) > maxEntityBytes {
		t.Errorf("entity of %d bytes", len(encoded))
	}
	if len(entity.Partition) > maxKeyBytes || strings.ContainsAny(entity.Partition, "/\\#?\t\n\r") {
		t.Errorf("key %q", entity.Partition)
	}
	for name, value := range entity.Values {
		length := 0
		switch v := value.(type) {
		case string:
			length = 2 * len(v) // UTF-16
			if strings.ContainsFunc(v, unicode.IsControl) || strings.ContainsAny(v, "\ufffd\ufffe\uffff") {
				t.Errorf("%s is %q", name, v)
			}
		case []byte:
			length = len(v)
		}
		if length > storage.MaxPropertyBytes {
			t.Errorf("%s has %d bytes", name, length)
		}
	}
	decoded, err := (&Table{}).decode(encoded)
	if diff := cmp.Diff(entity.Values, decoded.Values, cmp.Comparer(bytes.Equal)); diff != "" || err != nil {
		t.Errorf("%v, (-encoded +decoded):\n%s", err, diff)
	}
}
