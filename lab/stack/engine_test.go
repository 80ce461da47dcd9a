package stack

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// client is a docker that says what a real one does in some state of a machine.
const client = `#!/bin/sh
case "$1 $3" in
"buildx "*|"compose "*) exit 1 ;;
"version {{.Client.Version}}") echo "$CLIENT" ;;
"version {{.Server.Version}}") echo "$SAYS"; [ -n "$ANSWERS" ] ;;
esac
`

// The words are those of Docker 20.10 and 28.
func TestMakeUpSaysWhatItLacksAndHowToGetIt(t *testing.T) {
	for _, row := range []struct {
		name   string
		docker bool // there is one in the PATH
		env    []string
		want   []string
	}{
		{"no docker", false, nil, []string{"there is no docker in the PATH", "apt-get install docker.io docker-compose"}},
		{"no engine", true, []string{"CLIENT=20.10.24+dfsg1", "SAYS=Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"}, []string{
			"No Docker engine answers. Start it:", "systemctl start docker", "dockerd", "docker says: Cannot connect",
		}},
		{"no engine where it is said to be", true, []string{"CLIENT=20.10.24", "SAYS=no", "DOCKER_HOST=tcp://10.9.9.9:2375"}, []string{"No Docker engine answers at DOCKER_HOST=tcp://10.9.9.9:2375"}},
		{"not for this user", true, []string{"CLIENT=28.2.2", "SAYS=permission denied while trying to connect to the Docker daemon socket"}, []string{"group docker", "usermod -aG docker"}},
		{"a newer client without buildx", true, []string{"CLIENT=28.2.2", "SAYS=20.10.24", "ANSWERS=1"}, []string{"lacks the plugin buildx"}},
		{"no compose", true, []string{"CLIENT=20.10.24+dfsg1", "SAYS=20.10.24", "ANSWERS=1"}, []string{"docker compose or docker-compose", "apt-get install docker-compose"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := t.TempDir() // with what the script calls, and nothing of Docker's
			for _, program := range []string{"awk", "bash", "cut", "id", "sh"} {
				found, err := exec.LookPath(program)
				if err == nil {
					err = os.Symlink(found, filepath.Join(path, program))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if row.docker {
				if err := os.WriteFile(filepath.Join(path, "docker"), []byte(client), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(
				t.Context(),
				"bash",
				"-euo",
				"pipefail",
				"-c",
				"source deploy/compose/docker.sh; need_docker; need_compose",
			)
			cmd.Dir = root
			cmd.Env = append([]string{"PATH=" + path}, row.env...)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("no error: %s", out)
			}
			for _, want := range row.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("got\n%s\nwant %q in it", out, want)
				}
			}
		})
	}
}
