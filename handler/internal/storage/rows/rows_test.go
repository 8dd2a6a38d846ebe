package rows_test

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// row has members of all types, and one that is not stored.
type row struct {
	storage.Key
	embedded

	Number int    `row:"number"`
	Flag   bool   `row:"flag"`
	Large  []byte `row:"large"`
	Other  string
}

type embedded struct {
	Text string    `row:"text"`
	At   time.Time `row:"at"`
}

var at = time.Date(2026, 11, 21, 9, 15, 0, 100, time.UTC)

// TestEncode: which value each member has, and what is read back.
func TestEncode(t *testing.T) {
	text := func(s string) row { return row{embedded: embedded{Text: s}} }
	on := func(at time.Time) row { return row{embedded: embedded{At: at}} }
	east := time.FixedZone("", 3600)
	for name, test := range map[string]struct {
		row  row
		want map[string]any // nil: none
		read row
	}{
		"zero":         {},
		"other":        {row: row{Other: "not stored"}},
		"text":         {text("/<&>\"\\\u20ac"), map[string]any{"text": "/<&>\"\\\u20ac"}, text("/<&>\"\\\u20ac")},
		"control":      {text("a\x00\r\n\x1b[2J\u0085b"), map[string]any{"text": "a[2Jb"}, text("a[2Jb")},
		"no_character": {text("a\xff\ufffd\ufffe\uffff\u202eb"), map[string]any{"text": "a\u202eb"}, text("a\u202eb")},
		"long": {
			text(strings.Repeat("\u20ac", rows.MaxText)),
			map[string]any{"text": strings.Repeat("\u20ac", 341)},
			text(strings.Repeat("\u20ac", 341)),
		},
		"number":   {row{Number: 503}, map[string]any{"number": int32(503)}, row{Number: 503}},
		"large":    {row{Number: 1 << 40}, map[string]any{"number": int32(math.MaxInt32)}, row{Number: math.MaxInt32}},
		"negative": {row{Number: -1}, map[string]any{"number": int32(0)}, row{}},
		"flag":     {row{Flag: true}, map[string]any{"flag": true}, row{Flag: true}},
		"time":     {on(at.In(east)), map[string]any{"at": at}, on(at)},
		"first": {
			on(time.Date(1602, 1, 1, 1, 0, 0, 0, east)),
			map[string]any{"at": time.Date(1602, 1, 1, 0, 0, 0, 0, time.UTC)},
			on(time.Date(1602, 1, 1, 0, 0, 0, 0, time.UTC)),
		},
		"too_early": {row: on(time.Date(1602, 1, 1, 0, 59, 0, 0, east))},
		"too_late":  {row: on(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))},
		"bytes":     {row{Large: []byte{0, 255}}, map[string]any{"large": []byte{0, 255}}, row{Large: []byte{0, 255}}},
		"no_bytes":  {row{Large: []byte{}}, map[string]any{"large": []byte{}}, row{Large: []byte{}}},
	} {
		t.Run(name, func(t *testing.T) {
			key := storage.Key{Partition: "p", ID: "1", Version: "v", WrittenAt: at}
			test.row.Key, test.read.Key = key, key
			if test.want == nil {
				test.want = map[string]any{}
			}
			got, err := rows.Encode(test.row)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(storage.Entity{Key: key, Values: test.want}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if read := rows.Decode[row](got); !reflect.DeepEqual(read, test.read) {
				t.Errorf("read %+v, want %+v", read, test.read)
			}
		})
	}
}

// TestDecodeHostile: a value of another type counts as missing, whoever has written it.
func TestDecodeHostile(t *testing.T) {
	values := map[string]any{
		"text": int32(1), "number": "1", "flag": int32(1), "at": "2026-11-21T09:15:00Z", "large": "AA==", "Other": "x",
	}
	if got := rows.Decode[row](storage.Entity{Values: values}); !reflect.DeepEqual(got, row{}) {
		t.Errorf("read %+v", got)
	}
}

// TestTooLarge: the error names the member, and nothing is written.
func TestTooLarge(t *testing.T) {
	var table memory.Table
	large := row{Large: make([]byte, storage.MaxPropertyBytes+1)}
	_, replaceErr := rows.Replace(t.Context(), &table, large)
	for _, err := range []error{rows.Put(t.Context(), &table, row{}, large), replaceErr} {
		if !errors.Is(err, storage.ErrRefused) || !strings.Contains(err.Error(), "large has 65537 bytes") {
			t.Errorf("error %v", err)
		}
	}
	if _, found, err := table.Get(t.Context(), "", ""); found || err != nil {
		t.Errorf("written %t, %v", found, err)
	}
}

// TestList: a listing has no large values unless it is asked for them, and stops when it is told to.
func TestList(t *testing.T) {
	var table memory.Table
	want := row{Key: storage.Key{Partition: "p", ID: "1"}, Number: 1, Large: []byte("large")}
	second := row{Key: storage.Key{Partition: "p", ID: "2"}}
	if err := rows.Put(t.Context(), &table, want, second); err != nil {
		t.Fatal(err)
	}
	var listed, whole row
	err := errors.Join(
		rows.List(t.Context(), &table, storage.Query{}, func(r row) error { listed = r; return rows.ErrStop }),
		rows.ListWhole(t.Context(), &table, storage.Query{}, func(r row) error { whole = r; return rows.ErrStop }))
	if err != nil || listed.Number != 1 || listed.Large != nil || whole.Number != 1 || string(whole.Large) != "large" {
		t.Errorf("listed %+v and %+v, %v", listed, whole, err)
	}
}

// TestUnknownType: a declaration that has no entity is a mistake in the program.
func TestUnknownType(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	_, _ = rows.Encode(struct {
		storage.Key
		Ratio float64 `row:"ratio"`
	}{Ratio: 1})
}

// FuzzEncode checks that any row has an entity that storage takes, and is read back as it was written.
func FuzzEncode(f *testing.F) {
	f.Add("text\x00\xff\ufffe\u20ac", 503, int64(0), []byte("large"), true)
	f.Add(strings.Repeat("\U0010ffff", 300), -1<<62, int64(1)<<60, []byte(nil), false)
	f.Fuzz(func(t *testing.T, text string, number int, seconds int64, large []byte, flag bool) {
		var table memory.Table
		key := storage.Key{Partition: "p", ID: "1"}
		written := row{
			Key: key, embedded: embedded{text, time.Unix(seconds, 0)}, Number: number, Flag: flag, Large: large,
		}
		if err := rows.Put(t.Context(), &table, written); err != nil {
			if len(large) <= storage.MaxPropertyBytes {
				t.Error(err)
			}
			return
		}
		read, found, err := rows.Get[row](t.Context(), &table, key.Partition, key.ID)
		if !found || err != nil {
			t.Fatalf("found %t, %v", found, err)
		}
		isUnstorable := func(r rune) bool {
			return unicode.IsControl(r) || r == unicode.ReplacementChar || r == 0xFFFE || r == 0xFFFF
		}
		if !utf8.ValidString(read.Text) || len(read.Text) > rows.MaxText ||
			strings.ContainsFunc(read.Text, isUnstorable) ||
			len(text) <= rows.MaxText && !strings.ContainsFunc(text, isUnstorable) && read.Text != text {
			t.Errorf("text %q is read as %q", text, read.Text)
		}
		if read.Number != min(max(number, 0), math.MaxInt32) || read.Flag != flag || !bytes.Equal(read.Large, large) {
			t.Errorf("%+v is read as %+v", written, read)
		}
		year := written.At.UTC().Year()
		if isStored := year > 1601 && year < 10_000; isStored != read.At.Equal(written.At) ||
			!isStored && !read.At.IsZero() {
			t.Errorf("%v is read as %v", written.At, read.At)
		}
		if again, err := rows.Encode(read); err != nil || !reflect.DeepEqual(rows.Decode[row](again), read) {
			t.Errorf("%+v is written again as %+v, %v", read, again, err)
		}
	})
}
