// Watcher tells every inotify event on the files and folders that it is given, until it is told to end.
//
// It says "watching" once the watches are there, and "saw MASK NAME" for each event.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unsafe"
)

// Everything that happens to content: not that somebody reads it.
const events = syscall.IN_MODIFY | syscall.IN_ATTRIB | syscall.IN_CLOSE_WRITE | syscall.IN_MOVED_FROM |
	syscall.IN_MOVED_TO | syscall.IN_CREATE | syscall.IN_DELETE | syscall.IN_DELETE_SELF | syscall.IN_MOVE_SELF

func main() {
	descriptor, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
	check(err)
	for _, path := range os.Args[1:] {
		_, err := syscall.InotifyAddWatch(descriptor, path, events)
		check(err)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	go func() {
		<-ended
		os.Exit(0)
	}()
	fmt.Println("watching")
	var buffer [65536]byte
	for {
		length, err := syscall.Read(descriptor, buffer[:])
		if err == syscall.EINTR {
			continue
		}
		check(err)
		for at := 0; at < length; {
			event := (*syscall.InotifyEvent)(unsafe.Pointer(&buffer[at]))
			name := buffer[at+syscall.SizeofInotifyEvent : at+syscall.SizeofInotifyEvent+int(event.Len)]
			fmt.Printf("saw %#x %s\n", event.Mask, strings.TrimRight(string(name), "\x00"))
			at += syscall.SizeofInotifyEvent + int(event.Len)
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
