package bom_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"

	"asynccaller/handler/internal/plain/bom"
)

// wide writes a text in UTF-16, or in UTF-32 if its units are runes.
func wide[T uint16 | rune](order binary.AppendByteOrder, units []T) string {
	var text []byte
	for _, u := range units {
		switch u := any(u).(type) {
		case uint16:
			text = order.AppendUint16(text, u)
		case rune:
			text = order.AppendUint32(text, uint32(u))
		}
	}
	return string(text)
}

func TestText(t *testing.T) {
	const text, marked = "{\n\"å\": 1}", "\ufeff{\n\"å\": 1}"
	units := func(text string) []uint16 { return utf16.Encode([]rune(text)) }
	for name, test := range map[string]struct{ content, want, encoding string }{
		"utf8":               {content: text, want: text},
		"utf8_marked":        {content: marked, want: text},
		"one_mark_only":      {content: "\ufeff" + marked, want: marked},
		"mark_inside":        {content: "{}\ufeff", want: "{}\ufeff"},
		"half_a_mark":        {content: "\xef\xbb{", want: "\xef\xbb{"},
		"mark_alone":         {content: "\ufeff"},
		"empty":              {},
		"one_byte":           {content: "{", want: "{"},
		"nul":                {content: "\x00", want: "\x00"},
		"nuls":               {content: "\x00\x00\x00\x00", want: "\x00\x00\x00\x00"},
		"binary":             {content: "\x00\x01\x02", want: "\x00\x01\x02"},
		"binary_le":          {content: "\x08\x00\x00\x00", want: "\x08\x00\x00\x00"},
		"line_feed_le":       {content: "\n\x00", encoding: "UTF-16"},
		"nul_later":          {content: "ab\x00", want: "ab\x00"},
		"latin_1":            {content: "\xffa", want: "\xffa"},
		"utf16le":            {content: wide(binary.LittleEndian, units(text)), encoding: "UTF-16"},
		"utf16be":            {content: wide(binary.BigEndian, units(text)), encoding: "UTF-16"},
		"utf16le_marked":     {content: wide(binary.LittleEndian, units(marked)), encoding: "UTF-16"},
		"utf16be_marked":     {content: wide(binary.BigEndian, units(marked)), encoding: "UTF-16"},
		"utf16_mark_alone":   {content: "\xff\xfe", encoding: "UTF-16"},
		"utf16_one_letter":   {content: "{\x00", encoding: "UTF-16"},
		"utf16_not_ascii":    {content: wide(binary.LittleEndian, units("\ufeffå")), encoding: "UTF-16"},
		"utf32le":            {content: wide(binary.LittleEndian, []rune(text)), encoding: "UTF-32"},
		"utf32be":            {content: wide(binary.BigEndian, []rune(text)), encoding: "UTF-32"},
		"utf32le_marked":     {content: wide(binary.LittleEndian, []rune(marked)), encoding: "UTF-32"},
		"utf32be_marked":     {content: wide(binary.BigEndian, []rune(marked)), encoding: "UTF-32"},
		"utf32le_mark_alone": {content: "\xff\xfe\x00\x00", encoding: "UTF-32"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := bom.Text([]byte(test.content))
			read, readErr := io.ReadAll(bom.NewReader(iotest.OneByteReader(strings.NewReader(test.content))))
			if test.encoding == "" {
				if err := errors.Join(err, readErr); err != nil {
					t.Fatal(err)
				}
			} else {
				want := "the text is " + test.encoding + ": save it as UTF-8"
				if err == nil || err.Error() != want || readErr == nil || readErr.Error() != want {
					t.Errorf("errors %v and %v, want %s", err, readErr, want)
				}
			}
			if string(got) != test.want || !bytes.Equal(read, got) {
				t.Errorf("text %q, read %q, want %q", got, read, test.want)
			}
		})
	}
}

// TestReaderPassesOn checks that a reader returns what it has without waiting for more, and the error of its source.
func TestReaderPassesOn(t *testing.T) {
	in, out := io.Pipe()
	text := bom.NewReader(in)
	go func() { _, _ = out.Write([]byte("\ufeffline\n")) }() // and no more
	buffer := make([]byte, 100)
	n, err := text.Read(buffer)
	if string(buffer[:n]) != "line\n" || err != nil {
		t.Errorf("read %q, %v", buffer[:n], err)
	}
	broken := errors.New("broken")
	go func() { _ = out.CloseWithError(broken) }()
	if _, err := text.Read(buffer); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
}
