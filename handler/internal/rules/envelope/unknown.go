package envelope

import (
	"slices"
	"strings"

	"asynccaller/handler/internal/plain/nearest"
	"asynccaller/handler/internal/plain/strictjson"
)

// Unknown is a member that has no effect, perhaps because its name is misspelt.
type Unknown struct {
	// Path is the path of the member. Nearest is the path of the member that was probably meant; empty if none is
	// similar.
	Path    string `json:"path"`
	Nearest string `json:"nearest,omitempty"`
	// Vital says that a callback or a deadline was probably meant, and that the envelope has none.
	Vital bool `json:"-"`
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

// vitalMembers are those without which nobody learns of the outcome, or the call is made too late.
var vitalMembers = []string{
	string(partCallback), "deadline", nexusDeadlineAt, nexusRawRequest + "." + rawCallBack,
}

// UnknownMembers returns the first members of content that have no effect. It does not look into objects that may have
// any members, or that Async Caller writes. The content need not be a valid envelope. Without a marker it is taken for
// a native one, but only members that are probably misspelt are named: the others may be anything, also a secret.
func UnknownMembers(content []byte) []Unknown {
	members, _ := strictjson.Object(content)
	if _, form := unwrapContent(members); form != "" {
		return nil // the members are those of the wrapper
	}
	objects, same := nativeObjects(), strictjson.ExactNames
	isNative, isNexus := markers(members)
	if isNexus && !isNative {
		objects, same = nexusObjects(), strictjson.FoldNames
	}
	missing := slices.DeleteFunc(slices.Clone(vitalMembers), func(path string) bool {
		value := same.Get(content, strings.Split(path, ".")...)
		return value != nil && !strictjson.IsNull(value)
	})
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
				Path:    join(object.path, strictjson.Quotable(m.Name)),
				Nearest: nearestMember(object, objects, m.Name),
			}
			u.Vital = slices.Contains(missing, u.Nearest)
			if isNative || isNexus || u.Nearest != "" {
				unknown = append(unknown, u)
			}
		}
	}
	return unknown
}

func nexusObjects() []knownObject {
	return []knownObject{{"", nexusNames}, {nexusRawRequest, rawNames}}
}

// nearestMember looks for the name in its own object first. A member may also be in the wrong object, or have the name
// of a vital one with an addition, such as callbackUrl.
func nearestMember(own knownObject, objects []knownObject, name string) string {
	for _, object := range append([]knownObject{own}, objects...) {
		if similar, likely := nearest.Name(name, object.names); likely {
			return join(object.path, similar)
		}
	}
	for _, object := range objects {
		for _, known := range object.names {
			path := join(object.path, known)
			begins := len(name) > len(known) && strings.EqualFold(name[:len(known)], known)
			if begins && slices.Contains(vitalMembers, path) {
				return path
			}
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
