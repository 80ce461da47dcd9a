package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Neither make nor Go is in the PATH. No registry is reachable: the image with Go is made here.
func TestComposeUpAloneStartsTheStackOfAFreshClone(t *testing.T) {
	needEngine(t)
	forms := composeForms(t)
	clone := t.TempDir()
	if out, err := shell(t.Context(), "git clone --quiet . '"+clone+"' && deploy/images/toolchain"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { _, _ = docker(context.WithoutCancel(t.Context()), "rmi", "slicefeed-go:local") })
	path := t.TempDir()
	for _, program := range []string{"docker", "docker-compose"} {
		if found, err := exec.LookPath(program); err == nil {
			if err := os.Symlink(found, filepath.Join(path, program)); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := func(t *testing.T, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 75*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir = clone
		cmd.Env = []string{
			"PATH=" + path,
			"HOME=" + os.Getenv("HOME"),
			"GO_IMAGE=slicefeed-go:local",
			"DOCKER_HOST=" + os.Getenv("DOCKER_HOST"),
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	for i, form := range forms {
		t.Run(strings.Join(form, " "), func(t *testing.T) {
			begun := time.Now()
			out := run(t, append(form, "up", "--detach")...)
			t.Logf("up after %s", time.Since(begun).Round(time.Second))
			if i == 0 && !strings.Contains(out, "packages compiled") {
				t.Errorf("no progress is shown:\n%s", out)
			}
			eventually(t, time.Minute, func() error {
				out, err := docker(t.Context(), "exec", "slicefeed-writer-1", "/slicefeed-writer", "status")
				if err == nil && !strings.Contains(string(out), "3 ready") {
					err = fmt.Errorf("the Service does not have its endpoints:\n%s", out)
				}
				return err
			})
			run(t, append(form, "up", "--detach", "secured-prometheus", "consuming-prometheus")...)
			scraped(t, "29091", "slicefeed_inventory_build_info", 1)
			scraped(t, "29092", "slicefeed_writer_build_info", 2)
			run(t, append(form, "--profile", "observability", "down", "--volumes", "--timeout", "2")...)
		})
	}
}

// composeForms are the two forms of the command, as far as they are installed.
func composeForms(t *testing.T) (forms [][]string) {
	t.Helper()
	for _, form := range [][]string{{"docker-compose"}, {"docker", "compose"}} {
		if err := exec.CommandContext(t.Context(), form[0], append(form[1:], "version")...).Run(); err != nil {
			t.Logf("%s is not installed: %v", strings.Join(form, " "), err)
			continue
		}
		forms = append(forms, form)
	}
	if len(forms) == 0 {
		t.Skip("not run: docker compose up of a fresh clone: neither docker compose nor docker-compose is installed")
	}
	return forms
}

// scraped waits until a Prometheus has a metric of so many components, and every rule was evaluated without an error.
func scraped(t *testing.T, port, metric string, components int) {
	t.Helper()
	get := func(path string, into any) error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+port+"/api/v1/"+path, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		return json.NewDecoder(response.Body).Decode(into)
	}
	eventually(t, time.Minute, func() error {
		var answer struct {
			Data struct {
				Result []struct{ Metric map[string]string }
			}
		}
		if err := get("query?query="+metric, &answer); err != nil {
			return err
		}
		if n := len(answer.Data.Result); n != components {
			return fmt.Errorf("%d components have %s, want %d", n, metric, components)
		}
		return nil
	})
	eventually(t, time.Minute, func() error {
		var answer struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Name, Health, LastError string }
				}
			}
		}
		if err := get("rules", &answer); err != nil {
			return err
		}
		if len(answer.Data.Groups) == 0 {
			return errors.New("there are no rules")
		}
		for _, group := range answer.Data.Groups {
			for _, rule := range group.Rules {
				if rule.Health != "ok" {
					return fmt.Errorf("the rule %s is %s: %s", rule.Name, rule.Health, rule.LastError)
				}
			}
		}
		return nil
	})
}

func eventually(t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %v", within, err)
		}
		time.Sleep(500 * time.Millisecond) // none of these reports a change
	}
}
