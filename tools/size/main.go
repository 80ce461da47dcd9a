// Command size counts the code lines of services: lines of Go without blank lines, comments, tests and generated code.
// It fails if there are more than the number in size.max, which each change that deletes code lowers.
//
//	GOWORK=off go -C tools run ./size
package main

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	if err := check("../services", "size.max"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(folder, limit string) error {
	text, err := os.ReadFile(limit)
	if err != nil {
		return err
	}
	most, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	if err != nil {
		return fmt.Errorf("parse tools/%s: %w", limit, err)
	}
	lines, packages := 0, map[string]bool{}
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines += codeLines(src)
		packages[filepath.Dir(path)] = true
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Printf("services has %d code lines in %d packages, at most %d lines\n", lines, len(packages), most)
	if lines > most {
		return fmt.Errorf("services has %d code lines more than tools/%s allows; delete some, or raise the number and say what it buys", lines-most, limit)
	}
	return nil
}

// codeLines counts the lines that hold a token or a part of one; comments are no tokens.
func codeLines(src []byte) int {
	file := token.NewFileSet().AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue // inserted by the scanner
		}
		for n := range strings.Count(literal, "\n") + 1 {
			lines[file.Line(pos)+n] = true
		}
	}
}
