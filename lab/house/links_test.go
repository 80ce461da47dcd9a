package house

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fenced  = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	heading = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)|(?:src|href)="([^"]+)"`)
	unnamed = regexp.MustCompile(`[^\p{L}\p{N}_ -]`) // what GitHub leaves out of a heading's anchor
)

func TestEveryLinkOfEveryPageLeadsSomewhere(t *testing.T) {
	found := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		for _, target := range linksOf(read(t, path)) {
			found++
			if err := leads(path, target); err != nil {
				t.Errorf("%s: the link to %s: %v", path, target, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 150 {
		t.Errorf("only %d links were found: are they still written as they were?", found)
	}
}

// Comments cite pages of docs/design by name, with the anchor of a section.
var citation = regexp.MustCompile(`\b((?:decision-rules|feed|high-availability)\.md)(#[a-z0-9-]+)?`)

func TestCommentsCiteSectionsThatExist(t *testing.T) {
	found := 0
	for _, tree := range []string{"services", "lab"} {
		err := filepath.WalkDir(filepath.Join(root, tree), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" {
				return err
			}
			for _, m := range citation.FindAllStringSubmatch(read(t, path), -1) {
				found++
				if err := leads(filepath.Join(root, "docs/design/README.md"), m[0]); err != nil {
					t.Errorf("%s cites %s: %v", path, m[0], err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 20 {
		t.Errorf("only %d citations were found", found)
	}
}

// A page that the index does not lead to is one that nobody finds.
func TestIndexLeadsToEveryPage(t *testing.T) {
	docs := filepath.Join(root, "docs")
	reached := map[string]bool{}
	var follow func(page string)
	follow = func(page string) {
		if reached[page] || filepath.Ext(page) != ".md" || !strings.HasPrefix(page, docs) {
			return
		}
		reached[page] = true
		for _, target := range linksOf(read(t, page)) {
			path, _, _ := strings.Cut(target, "#")
			if path == "" {
				continue
			}
			path = filepath.Join(filepath.Dir(page), path)
			follow(path)
			if pages, err := filepath.Glob(filepath.Join(path, "*.md")); err == nil { // a folder
				for _, page := range pages {
					follow(page)
				}
			}
		}
	}
	follow(filepath.Join(docs, "README.md"))
	err := filepath.WalkDir(docs, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" && !reached[path] {
			t.Errorf("%s: no page that docs/README.md leads to has a link to it", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// linksOf returns the links of a page to files of this repository.
func linksOf(text string) (targets []string) {
	for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		if target := m[1] + m[2]; !strings.Contains(target, ":") {
			targets = append(targets, target)
		}
	}
	return targets
}

func leads(page, target string) error {
	path, anchor, anchored := strings.Cut(target, "#")
	if path == "" {
		path = page
	} else {
		path = filepath.Join(filepath.Dir(page), path)
	}
	if !anchored {
		_, err := os.Stat(path)
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
		if strings.ReplaceAll(unnamed.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-") == anchor {
			return nil
		}
	}
	return fmt.Errorf("no heading of %s has that anchor", path)
}
