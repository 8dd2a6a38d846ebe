package functionapp_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/app/functionapp"
)

// written is the function.json of the route of the queue orders-in.
func written(t *testing.T) string {
	t.Helper()
	shipped := mustRead(t, "../../../../functions/AC-standard/function.json")
	return mustReplace(t, shipped, `"async-caller"`, `"orders-in"`)
}

// tree returns the files of a folder. A folder without files ends in a slash.
func tree(t *testing.T, dir string) files {
	t.Helper()
	found := files{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		name = filepath.ToSlash(name)
		if entry.IsDir() {
			found[name+"/"] = ""
			return err
		}
		delete(found, filepath.ToSlash(filepath.Dir(name))+"/")
		found[name] = mustRead(t, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestSyncRoutes(t *testing.T) {
	const own, empty, file = "AC-route-orders-in", "AC-route-orders-in/", "AC-route-orders-in/function.json"
	function := written(t)
	orders, name := []string{"orders-in"}, []string{own}
	for test, row := range map[string]struct {
		files         files // beside those of a valid app; a folder has a name that ends in a slash
		queues        []string
		made, removed []string
		want          string // an error, if not empty
	}{
		"new":                 {files{}, orders, name, nil, ""},
		"unchanged":           {files{file: function}, orders, nil, nil, ""},
		"gone":                {files{file: function}, nil, nil, name, ""},
		"made_in_part":        {files{empty: ""}, orders, name, nil, ""},
		"written_in_part":     {files{file: function[:40]}, orders, name, nil, ""},
		"removed_in_part":     {files{empty: ""}, nil, nil, name, ""},
		"removed_marked":      {files{file: "\ufeff" + function}, nil, nil, name, ""},
		"other_function":      {files{"AC-priority-orders-in/function.json": "{}"}, nil, nil, nil, ""},
		"other_file":          {files{file: function, empty + "x": "x"}, nil, nil, nil, own + " is not a folder as"},
		"only_another_file":   {files{empty + "notes.txt": "x"}, orders, nil, nil, own + " is not a folder as"},
		"edited":              {files{file: function + " "}, nil, nil, nil, own + " is not a folder as"},
		"edited_of_a_route":   {files{file: `{"disabled": true}`}, orders, nil, nil, own + " is not a folder as"},
		"queue_of_another":    {files{"AC-route-b/function.json": function}, nil, nil, nil, "AC-route-b is not"},
		"folder_for_the_file": {files{file + "/": ""}, orders, nil, nil, own + " is not a folder as"},
		"file_for_the_folder": {files{own: "x"}, orders, nil, nil, own + " is not a folder as"},
		"other_case":          {files{"ac-Route-b/function.json": function}, orders, nil, nil, "ac-Route-b is not"},
		"one_of_two":          {files{"AC-route-a/x.txt": "", file: function}, nil, nil, nil, "AC-route-a is not"},
		"both_named":          {files{"AC-route-b": "x", "AC-route-a": "x"}, nil, nil, nil, "AC-route-b is not"},
	} {
		t.Run(test, func(t *testing.T) {
			dir := app(nil).write(t)
			for name, content := range row.files {
				folder, file := filepath.Split(dir + "/" + name)
				err := os.MkdirAll(folder, 0o750)
				if err == nil && file != "" {
					err = os.WriteFile(folder+file, []byte(content), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			want := tree(t, dir)
			made, removed, err := functionapp.SyncRoutes(dir, row.queues, nil)
			if row.want == "" && err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(made, row.made) || !slices.Equal(removed, row.removed) {
				t.Errorf("made %q and removed %q, want %q and %q", made, removed, row.made, row.removed)
			}
			if row.want != "" {
				wantProblem(t, err, row.want)
			} else {
				delete(want, file)
				delete(want, empty)
				if row.queues != nil {
					want[file] = function
				}
			}
			if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
				t.Errorf("folder (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSyncPosts: a route that takes posts has a function for them, until it takes none.
func TestSyncPosts(t *testing.T) {
	dir := app(nil).write(t)
	const name = "AC-in-orders-in"
	made, _, err := functionapp.SyncRoutes(dir, []string{"returns"}, []string{"orders-in"})
	if err != nil || !slices.Equal(made, []string{"AC-route-returns", name}) {
		t.Fatalf("made %q, %v", made, err)
	}
	loaded, err := functionapp.Load(dir, nil)
	want := functionapp.Post{
		Name: name, Binding: "req", Output: "res", Queue: "orders-in", AuthLevel: "function",
	}
	if err != nil || len(loaded.Unserved) > 0 || !slices.Equal(loaded.Posts, []functionapp.Post{want}) {
		t.Errorf("loaded %+v, %v", loaded.Posts, err)
	}
	made, removed, err := functionapp.SyncRoutes(dir, []string{"orders-in", "returns"}, nil)
	if err != nil || !slices.Equal(made, []string{"AC-route-orders-in"}) || !slices.Equal(removed, []string{name}) {
		t.Errorf("made %q, removed %q, %v", made, removed, err)
	}
}

// TestSyncedFunctionLoads: what SyncRoutes makes is a function of a route.
func TestSyncedFunctionLoads(t *testing.T) {
	longest := strings.Repeat("q", 56)
	dir := app(nil).write(t)
	if _, _, err := functionapp.SyncRoutes(dir, []string{longest}, nil); err != nil {
		t.Fatal(err)
	}
	loaded, err := functionapp.Load(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := functionapp.Function{
		Name: functionapp.RouteFunction(longest), Binding: "message", Queue: longest, DataType: functionapp.DataBinary,
	}
	if got := loaded.Functions[0]; got != want || !got.IsRouted() || loaded.Functions[1].IsRouted() {
		t.Errorf("got %+v, want %+v", loaded.Functions, want)
	}
}

// TestSyncStopsAtAFailure: the names of what was done come with the error, and another run does the rest.
func TestSyncStopsAtAFailure(t *testing.T) {
	dir := app(nil).write(t)
	made, _, err := functionapp.SyncRoutes(dir, []string{"a", strings.Repeat("b", 300), "c"}, nil)
	wantProblem(t, err, "AC-route-bbb")
	again, _, err := functionapp.SyncRoutes(dir, []string{"a", "c"}, nil)
	if !slices.Equal(made, []string{"AC-route-a"}) || !slices.Equal(again, []string{"AC-route-c"}) || err != nil {
		t.Errorf("made %q, then %q, %v", made, again, err)
	}
}
