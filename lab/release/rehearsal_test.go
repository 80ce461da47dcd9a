// Package release rehearses a release, and compiles a component twice to the same bytes.
package release

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	root      = "../.."
	generated = "github.com/slicefeed/slicefeed/gen"
)

// The program itself installs both components by go install, and checks versions, checksums and that nothing is replaced.
func TestARehearsalMakesAllThatAReleaseConsistsOf(t *testing.T) {
	if os.Getenv("SLICEFEED_VERIFY") != "1" {
		t.Skip("part of make verify")
	}
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "release-dry-run")
	cmd.Dir = top
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make release-dry-run: %v\n%s", err, said)
	}
	t.Logf("%s", said[max(0, len(said)-2500):])

	page, err := os.ReadFile(filepath.Join(top, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Releases\n")
	section, _, _ = strings.Cut(section, "\n## ")
	ran := regexp.MustCompile(`v\d+\.\d+\.\d+`).ReplaceAllString(string(said), "v0.1.0")
	if len(commands(section)) < 10 {
		t.Errorf("CONTRIBUTING.md has %q: does its table of the steps still stand in the section Releases?", commands(section))
	}
	for _, command := range commands(section) {
		if !strings.Contains(ran, command) {
			t.Errorf("CONTRIBUTING.md has %q, and that was not run", command)
		}
	}

	made := filepath.Join(top, ".bin/release")
	var got []string
	for _, half := range []string{"inventory", "writer"} {
		for _, arch := range []string{"amd64", "arm64"} {
			archive, parts := checkArchive(t, made, "slicefeed-"+half, "linux_"+arch+".tar.gz")
			got = append(got, archive...)
			if arch == "amd64" && slices.Contains(parts, "github.com/ionos-cloud/sdk-go/v6") != (half == "inventory") {
				t.Errorf("the IONOS SDK is the inventory's alone, and %s names %q", archive, parts)
			}
		}
		chart, err := filepath.Glob(filepath.Join(made, "slicefeed-"+half+"-*.tgz"))
		if err != nil || len(chart) != 1 {
			t.Fatalf("charts of %s: %q, %v", half, chart, err)
		}
		got = append(got, filepath.Base(chart[0]))
	}
	for _, platform := range []string{"linux_amd64.tar.gz", "linux_arm64.tar.gz", "darwin_amd64.tar.gz", "darwin_arm64.tar.gz", "windows_amd64.zip", "windows_arm64.zip"} {
		archive, _ := checkArchive(t, made, "kubectl-slicefeed", platform)
		got = append(got, archive...)
	}
	sums, err := os.ReadFile(filepath.Join(made, "checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var summed []string
	for line := range strings.Lines(string(sums)) {
		summed = append(summed, strings.Fields(line)[1])
	}
	slices.Sort(got)
	slices.Sort(summed)
	if diff := cmp.Diff(got, summed); diff != "" {
		t.Errorf("checksums.txt (-want +got):\n%s", diff)
	}
	checkPublished(t, made)
}

// checkPublished checks the digests and SBOMs of what the rehearsal pushed, which needs a Docker engine. It has
// installed and run all of it by these digests.
func checkPublished(t *testing.T, made string) {
	t.Helper()
	digests, err := os.ReadFile(filepath.Join(made, "digests.txt"))
	if errors.Is(err, os.ErrNotExist) {
		t.Log("not run: images and charts of a release in a registry: no Docker engine answers")
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, component := range []string{"inventory", "writer"} {
		for _, kind := range []string{"/slicefeed-%s@D image", "/slicefeed-%s@D image_amd64", "/slicefeed-%s@D image_arm64", "/charts/slicefeed-%s@D chart"} {
			line := strings.ReplaceAll(fmt.Sprintf(kind, component), "D", "sha256:[0-9a-f]{64}")
			if !regexp.MustCompile("(?m)" + line + "$").Match(digests) {
				t.Errorf("digests.txt has no line %s:\n%s", line, digests)
			}
		}
		for _, arch := range []string{"amd64", "arm64"} {
			bill, err := filepath.Glob(filepath.Join(made, "slicefeed-"+component+"_*_image_"+arch+".cdx.json"))
			if err != nil || len(bill) != 1 {
				t.Fatalf("SBOMs of the image of %s for %s: %q, %v", component, arch, bill, err)
			}
			if parts := components(t, bill[0]); !slices.Contains(parts, generated) || !slices.Contains(parts, "google.golang.org/grpc") {
				t.Errorf("%s names only %q", bill[0], parts)
			}
		}
	}
}

// checkArchive checks the archive of a program for a platform, and its SBOM. It returns the names of both files, and the
// modules that the SBOM names.
func checkArchive(t *testing.T, made, program, platform string) (names, parts []string) {
	t.Helper()
	archive, err := filepath.Glob(filepath.Join(made, program+"_*_"+platform))
	if err != nil || len(archive) != 1 {
		t.Fatalf("archives of %s for %s: %q, %v", program, platform, archive, err)
	}
	if strings.HasSuffix(platform, ".tar.gz") {
		want := []string{"LICENSE", "README.md", program}
		slices.Sort(want)
		if diff := cmp.Diff(want, content(t, archive[0])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", archive[0], diff)
		}
	}
	bill := strings.TrimSuffix(strings.TrimSuffix(archive[0], ".tar.gz"), ".zip") + ".cdx.json"
	parts = components(t, bill)
	if !slices.Contains(parts, generated) || !slices.Contains(parts, "google.golang.org/grpc") {
		t.Errorf("%s names only %q", bill, parts)
	}
	return []string{filepath.Base(archive[0]), filepath.Base(bill)}, parts
}

// commands are those of the page's table, each up to its first "…".
func commands(page string) (all []string) {
	for line := range strings.Lines(page) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for i, part := range strings.Split(cells[2], "`") {
			command, _, _ := strings.Cut(part, "…")
			// There may be nothing yet to compare with.
			if command = strings.TrimSpace(command); i%2 == 1 && !strings.HasPrefix(command, "buf breaking") {
				all = append(all, command)
			}
		}
	}
	return all
}

func content(t *testing.T, archive string) (names []string) {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
}

// components are the modules that an SBOM names.
func components(t *testing.T, path string) (names []string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var bill struct {
		Components []struct{ Name string }
	}
	if err := json.Unmarshal(raw, &bill); err != nil {
		t.Fatal(err)
	}
	for _, c := range bill.Components {
		names = append(names, c.Name)
	}
	return names
}
