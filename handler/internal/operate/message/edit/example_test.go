package edit_test

import (
	"context"
	"fmt"

	"asynccaller/handler/internal/operate/message/edit"
)

func ExampleEdits_Apply() {
	host, _ := edit.ParseReplaceHost("old.example=https://new.example:8443")
	limit, _ := edit.ParseSet("retry.maxAttempts=5")
	edits := edit.Edits{host, limit}
	content, err := edits.Apply(context.Background(), []byte(`{"asyncCaller":1,"call":{"url":"http://old.example/a?b=%2F"},"retry":{"factor":2.0}}`))
	fmt.Println(string(content), err)
	// Output:
	// {"asyncCaller":1,"call":{"url":"https://new.example:8443/a?b=%2F"},"retry":{"factor":2.0,"maxAttempts":5}} <nil>
}

func ExampleEditable() {
	fmt.Print(string(edit.Editable([]byte(`{"asyncCaller":1,"call":{"url":"http://h.example/"}}`))))
	// Output:
	// {
	//   "asyncCaller": 1,
	//   "call": {
	//     "url": "http://h.example/"
	//   }
	// }
}
