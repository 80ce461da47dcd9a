package stack

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const ours = "--filter=label=com.docker.compose.project=slicefeed"

// TestMakeUpRunsTheMainJobAndMakeDownRemovesIt starts both sides in containers, and has a worker leave and come back.
func TestMakeUpRunsTheMainJobAndMakeDownRemovesIt(t *testing.T) {
	if os.Getenv("SLICEFEED_VERIFY") == "" {
		t.Skip("part of make verify")
	}
	if out, err := shell(t.Context(), "docker version --format={{.Server.Version}}"); err != nil {
		t.Skipf("not run: the docker-compose stack: no Docker engine answers (%s)", strings.Join(strings.Fields(out), " "))
	}
	if left := run(t, left); left != "" {
		t.Skipf("not run: the docker-compose stack: one is up already; make down first:\n%s", left)
	}
	t.Cleanup(func() { _, _ = shell(context.WithoutCancel(t.Context()), "make down") }) // also of a stack that is half up
	run(t, "make up")                                                                   // ends when the Service has its three endpoints
	run(t, useStack+"kubectl --context secured delete node worker-3")
	waitEndpoints(t, "10.0.1.11=true 10.0.1.12=true ")
	run(t, "make up") // makes what is missing, here the Node
	waitEndpoints(t, "10.0.1.11=true 10.0.1.12=true 10.0.1.13=true ")
	run(t, "make down")
	if left := run(t, left); left != "" {
		t.Errorf("make down leaves:\n%s", left)
	}
}

// left lists everything of the stack that the engine has.
const left = "docker ps --all " + ours + " --format={{.Names}}; docker volume ls " + ours + " --format={{.Name}}; docker network ls " +
	ours + " --format={{.Name}}; docker images --filter=label=dev.slicefeed.stack=compose --format={{.Repository}}"

const useStack = "export PATH=$PWD/.bin:$PATH KUBECONFIG=.bin/compose-local/secured/kubeconfig:.bin/compose-local/consuming/kubeconfig\n"

func waitEndpoints(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		got := run(t, useStack+`kubectl --context consuming -n web get endpointslice shop-slicefeed -o go-template='
			{{- range .endpoints}}{{index .addresses 0}}={{.conditions.ready}} {{end}}' | tr ' ' '\n' | sort | xargs printf '%s '`)
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the endpoints are %q, want %q", got, want)
		}
		time.Sleep(200 * time.Millisecond) // a person checks again after a while, too
	}
}

func run(t *testing.T, commands string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	out, err := shell(ctx, commands)
	if err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, out)
	}
	return out
}

func shell(ctx context.Context, commands string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir, cmd.WaitDelay = "../..", time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}
