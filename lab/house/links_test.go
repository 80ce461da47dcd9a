package house

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	for _, page := range find(t, "", ".md") {
		for _, target := range linksOf(read(t, page)) {
			found++
			if err := leads(filepath.Join(root, page), target); err != nil {
				t.Errorf("%s: the link to %s: %v", page, target, err)
			}
		}
	}
	if found < 150 {
		t.Errorf("only %d links were found: are they still written as they were?", found)
	}
}

// Comments cite pages of docs/design by name, with the anchor of a section.
var citation = regexp.MustCompile(`\b((?:decision-rules|feed|high-availability)\.md)(#[a-z0-9-]+)?`)

func TestCommentsCiteSectionsThatExist(t *testing.T) {
	for _, path := range slices.Concat(find(t, "services", ".go"), find(t, "lab", ".go")) {
		for _, m := range citation.FindAllString(read(t, path), -1) {
			if err := leads(filepath.Join(root, "docs/design/README.md"), m); err != nil {
				t.Errorf("%s cites %s: %v", path, m, err)
			}
		}
	}
}

// A page that the index does not lead to is one that nobody finds.
func TestIndexLeadsToEveryPage(t *testing.T) {
	reached := map[string]bool{}
	var follow func(page string)
	follow = func(page string) {
		if reached[page] || filepath.Ext(page) != ".md" || !within(page, "docs") {
			return
		}
		reached[page] = true
		for _, target := range linksOf(read(t, page)) {
			if path, _, _ := strings.Cut(target, "#"); path != "" {
				path = filepath.Join(filepath.Dir(page), path)
				follow(path)
				if pages, err := filepath.Glob(filepath.Join(root, path, "*.md")); err == nil { // a folder
					for _, page := range pages {
						follow(filepath.Join(path, filepath.Base(page)))
					}
				}
			}
		}
	}
	follow("docs/README.md")
	for _, page := range find(t, "docs", ".md") {
		if !reached[page] {
			t.Errorf("%s: no page that docs/README.md leads to has a link to it", page)
		}
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
