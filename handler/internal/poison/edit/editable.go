package edit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/strictjson"
)

// maxIndentedDepth limits the white space. Each level adds indentation, so a small message that consists of brackets
// would otherwise grow a thousandfold.
const maxIndentedDepth = 64

// Editable returns content for an editor: indented JSON in the form of [envelope.Unpack]. Characters that cannot be seen
// are JSON escapes. Lines of text end with CR LF, which is not shown. Content that is not a JSON object is returned
// as it is.
func Editable(content []byte) []byte {
	text := bytes.TrimSpace(content)
	if _, err := strictjson.Object(text); err != nil {
		return content
	}
	if unpacked, err := envelope.Unpack(text); err == nil {
		text = unpacked
	}
	text = strictjson.EscapeUnprintable(text)
	if depth, err := strictjson.Depth(text); err == nil && depth <= maxIndentedDepth {
		var w bytes.Buffer
		if err := json.Indent(&w, text, "", "  "); err == nil {
			text = w.Bytes()
		}
	}
	return append(slices.Clip(bytes.TrimSpace(text)), '\n')
}

// Restore converts the edited result of [Editable] back to content. Values that are still the same keep their bytes from
// the original; if all are, the result is the original. Changed white space and a changed order of members are not
// changed values. The error says where the text is not JSON or which member is wrong, so that the person can correct it.
func Restore(original, edited []byte) ([]byte, error) {
	edited = bytes.TrimSpace(edited)
	if bytes.Equal(edited, bytes.TrimSpace(Editable(original))) {
		return original, nil
	}
	if _, err := strictjson.Object(edited); err != nil {
		return nil, fmt.Errorf("the edited message is not an envelope: %w", err)
	}
	if _, err := strictjson.Object(original); err != nil {
		return edited, nil //nolint:nilerr // nothing of it can be kept
	}
	packed, err := envelope.Repack(bytes.TrimSpace(original), edited)
	if err == nil {
		packed, err = strictjson.Merge{Same: sameText}.Values(original, packed)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("the edited message is not an envelope: %w", err)
	case bytes.Equal(packed, bytes.TrimSpace(original)):
		return original, nil
	}
	return packed, nil
}

// sameText compares values as Editable writes them, without white space.
func sameText(a, b json.RawMessage) bool {
	return bytes.Equal(strictjson.EscapeUnprintable(strictjson.Compact(a)), strictjson.EscapeUnprintable(strictjson.Compact(b)))
}
