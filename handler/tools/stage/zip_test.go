package main

import (
	"archive/zip"
	"path/filepath"
	"testing"
)

// TestZipHeaders checks what readers do with the zip: Linux sets the run bit only if the upper byte of the creator's
// version says that it was made on Unix, and .NET's ZipArchive reads DOS times.
func TestZipHeaders(t *testing.T) {
	const unix, zipVersion20, executableFile = 3, 20, 0o100755
	dist := newDist(t)
	mustPack(t, projectRoot, dist)
	r, err := zip.OpenReader(filepath.Join(dist, archive))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for _, file := range r.File {
		system, version := file.CreatorVersion>>8, file.CreatorVersion&0xff
		if system != unix || version != zipVersion20 {
			t.Errorf("%s was made on system %d by version %d", file.Name, system, version)
		}
		if file.Name == executable && file.ExternalAttrs>>16 != executableFile {
			t.Errorf("%s has the mode %o", file.Name, file.ExternalAttrs>>16)
		}
		if year := int(file.ModifiedDate>>9) + 1980; year > 2030 {
			t.Errorf("a reader of DOS times sees %s with the year %d", file.Name, year)
		}
	}
}
