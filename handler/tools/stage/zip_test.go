package main

import (
	"archive/zip"
	"os"
	"path/filepath"
	"testing"
)

func TestZipTimesAreReadableAsDOSTimes(t *testing.T) {
	dist := newDist(t)
	mustPack(t, projectRoot, dist)
	r, err := zip.OpenReader(filepath.Join(dist, archive))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if year := int(r.File[0].ModifiedDate>>9) + 1980; year > 2030 {
		t.Errorf("a reader of DOS times (.NET's ZipArchive) sees the year %d", year)
	}
}

func TestFailedPackLeavesNoBrokenZip(t *testing.T) {
	dist := newDist(t)
	mustPack(t, projectRoot, dist)
	if err := os.Remove(filepath.Join(dist, inside, executable)); err != nil {
		t.Fatal(err)
	}
	_ = stagePackage(projectRoot, dist)
	if info, err := os.Stat(filepath.Join(dist, archive)); err == nil && info.Size() == 0 {
		t.Error("there is an empty async-caller.zip in dist")
	}
}

// Linux sets the run bit only of a zip that says it was made on Unix: the upper byte of the creator's version is the
// system.
func TestZipIsMadeOnUnix(t *testing.T) {
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
	}
}
