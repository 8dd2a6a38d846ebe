package strictjson_test

import (
	"testing"

	"asynccaller/handler/internal/strictjson"
)

func TestHalfSurrogateBesideAnEscapedBackslash(t *testing.T) {
	if got, err := strictjson.String([]byte(`"\\ufffd\ud800"`)); err == nil {
		t.Errorf("half a surrogate pair was read as %q", got)
	}
}
