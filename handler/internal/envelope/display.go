package envelope

// Embedded is a member that holds a message, a body or other JSON in a string, for people to see decoded.
type Embedded struct {
	Path   []string
	Kind   EmbeddedKind
	Base64 bool
	// ContentType is the path of the header that gives the type of a body; nil if there is none.
	ContentType []string
}

// EmbeddedKind is the kind of embedded content.
type EmbeddedKind int

// The kinds of embedded content.
const (
	EmbeddedHTTP EmbeddedKind = iota // an HTTP message, as bytes
	EmbeddedBody
	EmbeddedJSON
)

// EmbeddedMembers lists the members of both formats that embed content. Malformed messages are displayed too, and their
// format may be unclear, so all of them apply to any message. Their names are compared without letter case.
func EmbeddedMembers() []Embedded {
	return append((&native{}).embedded(), (&nexus{}).embedded()...)
}

func (*native) embedded() []Embedded {
	contentType := []string{string(partCall), "headers", "Content-Type"}
	return []Embedded{
		{Path: []string{string(partCall), "body"}, Kind: EmbeddedBody, ContentType: contentType},
		{Path: []string{string(partCall), "bodyBase64"}, Kind: EmbeddedBody, ContentType: contentType, Base64: true},
	}
}

func (*nexus) embedded() []Embedded {
	return []Embedded{
		{Path: []string{nexusRawRequest, rawCallOut}, Kind: EmbeddedHTTP, Base64: true},
		{Path: []string{nexusRawRequest, rawCallBack}, Kind: EmbeddedHTTP, Base64: true},
		{Path: []string{nexusRawRequest, rawContext}, Kind: EmbeddedJSON, Base64: true},
		{Path: []string{nexusLatestResponse}, Kind: EmbeddedHTTP, Base64: true},
	}
}
