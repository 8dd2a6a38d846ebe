package main

import (
	"encoding/json"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
)

// The types below are the part of CycloneDX 1.6 that the SBOM uses. It has neither a time nor a serial number, so that the
// same executables have the same SBOM.
type bom struct {
	Schema       string       `json:"$schema"`
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string      `json:"type"`
	Ref        string      `json:"bom-ref"`
	Name       string      `json:"name"`
	Version    string      `json:"version"`
	Hashes     []hash      `json:"hashes,omitempty"`
	PURL       string      `json:"purl,omitempty"`
	Properties []property  `json:"properties,omitempty"`
	Components []component `json:"components,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// writeSBOM lists the executables and, for each, the modules that the Go tool recorded in it.
func writeSBOM(executables []built, path string) error {
	main := executables[0].info
	product := component{Type: "application", Ref: executable, Name: executable, Version: main.Main.Version}
	if commit := setting(main, "vcs.revision"); commit != "" {
		product.Properties = []property{{"vcs.revision", commit}}
	}
	all := dependency{Ref: executable}
	var dependencies []dependency
	libraries := map[string]component{}
	for _, e := range executables {
		sum, err := sha256Of(e.path)
		if err != nil {
			return err
		}
		ref := executable + "_" + e.system + "_" + e.processor
		product.Components = append(product.Components, component{
			Type: "application", Ref: ref, Name: ref, Version: main.Main.Version, Hashes: []hash{{"SHA-256", sum}},
		})
		all.DependsOn = append(all.DependsOn, ref)
		uses := dependency{Ref: ref}
		for _, library := range modules(e.info) {
			libraries[library.Ref] = library
			uses.DependsOn = append(uses.DependsOn, library.Ref)
		}
		dependencies = append(dependencies, uses)
	}
	text, err := json.MarshalIndent(bom{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata:     metadata{product},
		Components:   sortedValues(libraries),
		Dependencies: append([]dependency{all}, dependencies...),
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// modules returns the modules in an executable, and Go's standard library.
func modules(info *debug.BuildInfo) []component {
	goVersion, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ") // experiments follow
	all := []component{library("stdlib", goVersion)}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		c := library(module.Path, module.Version)
		if module.Sum != "" {
			c.Properties = []property{{"go.sum", module.Sum}}
		}
		all = append(all, c)
	}
	return all
}

func library(name, version string) component {
	// The specification of package URLs wants Go's names in lower case, and the + of +incompatible escaped.
	url := "pkg:golang/" + strings.ToLower(name) + "@" + strings.ReplaceAll(version, "+", "%2B")
	return component{Type: "library", Ref: url, Name: name, Version: version, PURL: url}
}

func sortedValues(byKey map[string]component) (values []component) {
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		values = append(values, byKey[key])
	}
	return values
}
