package deploytest

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is a module of Azure's SDK for Go. The tests read its source, because compiling it takes minutes; so it is
// no dependency of this project's.
type module struct{ path, sum string }

const sdk = "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/"

var (
	web           = module{"appservice/armappservice/v5@v5.0.0", "h1:3SWJMYTSmSm58feO05zXIKsO2AILiCjfMPx87VIG0lY="}
	insights      = module{"applicationinsights/armapplicationinsights@v1.2.0", "h1:7FX6sHNPamIAyukt6w9Gw5Qa5bu+gVN2Iy70yHc0xns="}
	logs          = module{"operationalinsights/armoperationalinsights/v2@v2.0.2", "h1:SFLbQmpdytToYZQJw5NqrZRwHPIGJmf5ZgjStbLfUuU="}
	monitor       = module{"monitor/armmonitor@v0.13.0", "h1:c7r8eBbYWf2JbQFinuEbHsqq+ukY1tVIgAxt0uND2Fo="}
	authorization = module{"authorization/armauthorization/v2@v2.2.0", "h1:Hp+EScFOu9HeCbeW8WU2yQPJd4gGwhMgKxWe+G6jNzw="}
	msi           = module{"msi/armmsi@v1.3.0", "h1:L7G3dExHBgUxsO3qpTGhk/P2dgnYyW48yn7AO33Tbek="}
	storage       = module{"storage/armstorage/v3@v3.0.0", "h1:tqGq5xt/rNU57Eb52rf6bvrNWoKPSwLDVUQrJnF4C5U="}
	network       = module{"network/armnetwork/v7@v7.2.0", "h1:DgqO2jYgDEqmN8W5sPP+ZU7Tfxyn+i9RqXtNsX6Enb8="}
)

// schema is the type of the SDK that describes a resource.
type schema struct {
	module module
	goType string
	// version is the module's version of the API if it is not the template's: monitor has only previews, whose stable
	// versions lack some members.
	version string
}

// schemas are the resource types and API versions that the template may use.
var schemas = map[string]schema{
	"Microsoft.Authorization/roleAssignments@2022-04-01":                   {authorization, "RoleAssignmentCreateParameters", ""},
	"Microsoft.Insights/actionGroups@2023-01-01":                           {monitor, "ActionGroupResource", "2024-10-01-preview"},
	"Microsoft.Insights/components@2020-02-02":                             {insights, "Component", ""},
	"Microsoft.Insights/scheduledQueryRules@2023-12-01":                    {monitor, "ScheduledQueryRuleResource", "2025-01-01-preview"},
	"Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30":          {msi, "Identity", ""},
	"Microsoft.Network/virtualNetworks@2025-01-01":                         {network, "VirtualNetwork", ""},
	"Microsoft.OperationalInsights/workspaces@2025-07-01":                  {logs, "Workspace", ""},
	"Microsoft.Storage/storageAccounts@2025-06-01":                         {storage, "AccountCreateParameters", ""},
	"Microsoft.Storage/storageAccounts/blobServices@2025-06-01":            {storage, "BlobServiceProperties", ""},
	"Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01": {storage, "BlobContainer", ""},
	"Microsoft.Storage/storageAccounts/queueServices@2025-06-01":           {storage, "QueueServiceProperties", ""},
	"Microsoft.Storage/storageAccounts/queueServices/queues@2025-06-01":    {storage, "Queue", ""},
	"Microsoft.Storage/storageAccounts/tableServices@2025-06-01":           {storage, "TableServiceProperties", ""},
	"Microsoft.Storage/storageAccounts/tableServices/tables@2025-06-01":    {storage, "Table", ""},
	"Microsoft.Web/serverfarms@2024-11-01":                                 {web, "Plan", ""},
	"Microsoft.Web/sites@2024-11-01":                                       {web, "Site", ""},
	"Microsoft.Web/sites/config@2024-11-01":                                {web, "StringDictionary", ""},
	"Microsoft.Web/sites/basicPublishingCredentialsPolicies@2024-11-01":    {web, "CsmPublishingCredentialsPoliciesEntity", ""},
}

// sdkMember is a member of the JSON that a type of the SDK becomes.
type sdkMember struct {
	kind               ast.Expr
	readOnly, required bool
}

// sdkTypes are the types of a module.
type sdkTypes struct {
	structs  map[string]map[string]sdkMember // by the name in JSON
	enums    map[string][]any
	versions []string
}

var apiVersion = regexp.MustCompile(`"(20\d\d-\d\d-\d\d(?:-preview)?)"`)

// load reads a module's types from its source.
func (m module) load(t *testing.T) sdkTypes {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", sdk+m.path)
	cmd.Dir = t.TempDir() // outside of this project's go.mod
	output, err := cmd.Output()
	var got struct{ Dir, Sum, Error string }
	if jsonErr := json.Unmarshal(output, &got); jsonErr != nil || got.Error != "" || got.Sum != m.sum {
		t.Fatalf("go mod download %s: %v %v %s: sum %s, want %s", m.path, err, jsonErr, got.Error, got.Sum, m.sum)
	}
	types := sdkTypes{map[string]map[string]sdkMember{}, map[string][]any{}, nil}
	fields := map[string]map[string]sdkMember{} // by the name in Go
	var marshallers []*ast.FuncDecl
	for _, path := range sources(t, got.Dir) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range apiVersion.FindAllStringSubmatch(string(text), -1) {
			types.versions = append(types.versions, match[1])
		}
		if strings.HasSuffix(path, "_client.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				if d.Name.Name == "MarshalJSON" {
					marshallers = append(marshallers, d)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					types.declare(spec, fields)
				}
			}
		}
	}
	for _, m := range marshallers {
		types.marshaller(m, fields)
	}
	return types
}

func sources(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, entry := range entries {
		if name := entry.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths
}

// declare takes the fields of a struct and the values of an enum.
func (types sdkTypes) declare(spec ast.Spec, fields map[string]map[string]sdkMember) {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		body, ok := s.Type.(*ast.StructType)
		if !ok {
			return
		}
		fields[s.Name.Name] = map[string]sdkMember{}
		for _, f := range body.Fields.List {
			if len(f.Names) == 1 {
				comment := f.Doc.Text()
				fields[s.Name.Name][f.Names[0].Name] = sdkMember{f.Type, strings.HasPrefix(comment, "READ-ONLY;"), strings.HasPrefix(comment, "REQUIRED;")}
			}
		}
	case *ast.ValueSpec:
		kind, named := s.Type.(*ast.Ident)
		if !named || len(s.Values) != 1 {
			return
		}
		value, ok := s.Values[0].(*ast.BasicLit)
		if !ok {
			return
		}
		if text, err := strconv.Unquote(value.Value); err == nil {
			types.enums[kind.Name] = append(types.enums[kind.Name], text)
		} else if number, err := strconv.ParseFloat(value.Value, 64); err == nil {
			types.enums[kind.Name] = append(types.enums[kind.Name], number)
		}
	}
}

// marshaller takes the names in JSON from a MarshalJSON: populate(objectMap, "name", x.Field).
func (types sdkTypes) marshaller(f *ast.FuncDecl, fields map[string]map[string]sdkMember) {
	receiver, ok := f.Recv.List[0].Type.(*ast.Ident)
	if !ok {
		return
	}
	names := map[string]sdkMember{}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 3 {
			return true
		}
		name, isText := call.Args[1].(*ast.BasicLit)
		field, isField := call.Args[2].(*ast.SelectorExpr)
		if isText && isField {
			unquoted, _ := strconv.Unquote(name.Value)
			names[unquoted] = fields[receiver.Name][field.Sel.Name]
		}
		return true
	})
	types.structs[receiver.Name] = names
}

// check compares a value with a type.
func (types sdkTypes) check(p *problems, path string, value any, kind ast.Expr) {
	if _, later := value.(unknown); later || value == nil {
		return
	}
	switch k := kind.(type) {
	case *ast.StarExpr:
		types.check(p, path, value, k.X)
	case *ast.ArrayType:
		items, ok := value.([]any)
		if !ok {
			p.add("%s is %v: want an array", path, value)
		}
		for i, item := range items {
			types.check(p, fmt.Sprintf("%s[%d]", path, i), item, k.Elt)
		}
	case *ast.MapType:
		members, ok := value.(map[string]any)
		if !ok {
			p.add("%s is %v: want an object", path, value)
		}
		for name, item := range members {
			types.check(p, path+"."+name, item, k.Value)
		}
	case *ast.Ident:
		types.checkNamed(p, path, value, k.Name)
	default:
		p.add("%s: the schema has a %T", path, kind)
	}
}

// scalars are the types of the SDK without members.
var scalars = map[string]string{"string": "string", "bool": "bool", "int32": "int", "int64": "int", "float64": "int"}

func (types sdkTypes) checkNamed(p *problems, path string, value any, kind string) {
	if want, ok := scalars[kind]; ok {
		if typeName(value) != want {
			p.add("%s is %v: want %s", path, value, want)
		}
		return
	}
	if enum, ok := types.enums[kind]; ok {
		if !slices.Contains(enum, value) {
			p.add("%s is %v: want one of %v", path, value, enum)
		}
		return
	}
	members, ok := types.structs[kind]
	if !ok {
		p.add("%s: the schema has no type %s", path, kind)
		return
	}
	object, ok := value.(map[string]any)
	if !ok {
		p.add("%s is %v: want an object", path, value)
		return
	}
	for name, v := range object {
		switch m, known := members[name]; {
		case !known:
			p.add("%s has no member %s", path, name)
		case m.readOnly:
			p.add("%s.%s is read-only", path, name)
		default:
			types.check(p, path+"."+name, v, m.kind)
		}
	}
	for name, m := range members {
		if v, there := object[name]; m.required && (!there || v == nil) {
			p.add("%s has no %s", path, name)
		}
	}
}
