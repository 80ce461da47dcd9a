package stack

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeGo stands in for go on a machine that is no Linux: what it compiles are scripts that name their
// platform, and that run only if it is the machine's own.
const fakeGo = `#!/bin/sh
platform=${GOOS:-darwin}/${GOARCH:-amd64}
if [ "$1" = env ]; then echo amd64; exit; fi
while [ $# -gt 0 ]; do
  case $1 in
  -o) out=$2 && shift ;;
  ./lab/cmd/* | github.com/*) programs="$programs $(basename "$1")" ;;
  esac
  shift
done
case $out in */) mkdir -p "$out" ;; *) programs=$(basename "$out") out=$(dirname "$out")/ ;; esac
for program in $programs; do
  rm -f "$out$program"
  cat >"$out$program" <<END
#!/bin/sh
# platform: $platform
[ $platform = darwin/amd64 ] || { echo "\$0: exec format error" >&2; exit 126; }
[ "\$1" = upstream ] || exit 0
shift
for program; do
  dir=$FAKES/\${GOOS:-darwin}-\${GOARCH:-amd64} && mkdir -p "\$dir"
  echo "# platform: \${GOOS:-darwin}/\${GOARCH:-amd64}" >"\$dir/\$program" && echo "\$dir/\$program"
done
END
  chmod +x "$out$program"
done
`

// fakeDocker has an engine of another architecture, and writes down what gets into images.
const fakeDocker = `#!/bin/sh
case "$1 $3" in
"version {{.Server.Arch}}") echo arm64 ;;
"version "*) echo 28.2.2 ;;
"build "*)
  for context; do :; done
  find "$context" -type f -path "*/bin/*" -o -type f -name 'slicefeed-*' | while read -r file; do
    echo "$(basename "$file") $(sed -n 's/^# platform: //p' "$file")"
  done >>"$FAKES/in-images" ;;
esac
`

// runWithFakes runs a script of a copy of deploy/ on a pretended Mac, and returns where, and the platform of
// each program that was put into an image.
func runWithFakes(t *testing.T, script ...string) (dir string, images []string) {
	t.Helper()
	dir, fakes := t.TempDir(), t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(filepath.Join(root, "deploy"))); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"go": fakeGo, "docker": fakeDocker} {
		if err := os.WriteFile(filepath.Join(fakes, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, script[0]), script[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+fakes+":"+os.Getenv("PATH"), "FAKES="+fakes, "GOOS=", "GOARCH=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", script, err, out)
	}
	text, err := os.ReadFile(filepath.Join(fakes, "in-images"))
	if err != nil {
		t.Fatal(err)
	}
	images = strings.Split(strings.TrimSpace(string(text)), "\n")
	slices.Sort(images)
	return dir, slices.Compact(images)
}

func TestMakeUpOnAMacPutsLinuxProgramsIntoTheImages(t *testing.T) {
	dir, images := runWithFakes(t, "deploy/compose/up")
	want := []string{
		"etcd linux/arm64", "ionosapi linux/arm64", "kube-apiserver linux/arm64",
		"slicefeed-inventory linux/arm64", "slicefeed-writer linux/arm64", "stack linux/arm64",
	}
	if diff := cmp.Diff(want, images); diff != "" {
		t.Errorf("programs in the images (-want +got):\n%s", diff)
	}
	for _, tool := range []string{"kubectl", "grpcurl"} {
		text, err := os.ReadFile(filepath.Join(dir, ".bin", tool))
		if err != nil {
			t.Fatal(err)
		}
		if got := regexp.MustCompile(`platform: (.*)`).FindStringSubmatch(string(text)); len(got) != 2 || got[1] != "darwin/amd64" {
			t.Errorf("%s, which people run on their machine, is for %q", tool, got)
		}
	}
}

func TestMakeImagesOnAMacPutsLinuxProgramsIntoTheImages(t *testing.T) {
	_, images := runWithFakes(t, "deploy/images/build", "slicefeed-", "test")
	if diff := cmp.Diff([]string{"slicefeed-inventory linux/arm64", "slicefeed-writer linux/arm64"}, images); diff != "" {
		t.Errorf("programs in the images (-want +got):\n%s", diff)
	}
}

func TestImagesCanBeBuiltForAnotherArchitecture(t *testing.T) {
	t.Setenv("ARCH", "amd64")
	_, images := runWithFakes(t, "deploy/images/build", "slicefeed-", "test")
	if diff := cmp.Diff([]string{"slicefeed-inventory linux/amd64", "slicefeed-writer linux/amd64"}, images); diff != "" {
		t.Errorf("programs in the images (-want +got):\n%s", diff)
	}
}

// What make up runs on the machine itself has to compile for macOS, and what runs in the containers for arm64. The
// libraries are compiled again for each, which takes minutes.
func TestWhatMakeUpCompilesOnAMacCompiles(t *testing.T) {
	if os.Getenv("SLICEFEED_VERIFY") == "" {
		t.Skip("part of make verify")
	}
	for _, row := range []struct {
		goos     string
		packages []string
	}{
		{"darwin", []string{"./lab/cmd/stack"}},
		{"linux", []string{"./lab/cmd/stack", "./lab/cmd/ionosapi", "./services/inventory", "./services/writer"}},
	} {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-o", t.TempDir()}, row.packages...)...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GOOS="+row.goos, "GOARCH=arm64", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("for %s/arm64: %v\n%s", row.goos, err, out)
		}
	}
}
