package envelope

import (
	"slices"

	"asynccaller/handler/internal/nearest"
	"asynccaller/handler/internal/strictjson"
)

// Unknown is a member that has no effect, perhaps because its name is misspelt.
type Unknown struct {
	// Path is the path of the member. Nearest is the path of the member that was probably meant; empty if none is
	// similar.
	Path    string `json:"path"`
	Nearest string `json:"nearest,omitempty"`
}

func (u Unknown) String() string {
	text := u.Path + ": unknown member, without effect"
	if u.Nearest != "" {
		text += "; did you mean " + u.Nearest + "?"
	}
	return text
}

// maxUnknown bounds the list of unknown members: a message may consist of nothing else.
const maxUnknown = 100

// knownObject has the names of the members of an envelope, whose path is empty, or of an object in it.
type knownObject struct {
	path  string
	names []string
}

// UnknownMembers returns the first members of content that have no effect. It does not look into objects that may have
// any members, or that Async Caller writes. The content need not be a valid envelope. Without a marker it is taken for
// a native one, but only members that are probably misspelt are named: the others may be anything, also a secret.
func UnknownMembers(content []byte) []Unknown {
	members, _ := strictjson.Object(content)
	objects, same := nativeObjects(), strictjson.ExactNames
	isNative, isNexus := markers(members)
	if isNexus && !isNative {
		objects, same = []knownObject{{"", nexusNames}, {nexusRawRequest, rawNames}}, strictjson.FoldNames
	}
	var unknown []Unknown
	for _, object := range objects {
		if object.path != "" {
			members, _ = strictjson.Object(orNull(same.Get(content, object.path)))
		}
		for _, m := range members {
			known := slices.ContainsFunc(object.names, func(name string) bool { return same(name, m.Name) })
			if known || len(unknown) == maxUnknown {
				continue
			}
			u := Unknown{
				Path:    join(object.path, strictjson.Printable(m.Name)),
				Nearest: nearestMember(object, objects, m.Name),
			}
			if isNative || isNexus || u.Nearest != "" {
				unknown = append(unknown, u)
			}
		}
	}
	return unknown
}

// nearestMember looks for the name in its own object first. A member may also be in the wrong object.
func nearestMember(own knownObject, objects []knownObject, name string) string {
	for _, object := range append([]knownObject{own}, objects...) {
		if similar, likely := nearest.Name(name, object.names); likely {
			return join(object.path, similar)
		}
	}
	return ""
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
