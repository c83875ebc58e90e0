// SPDX-License-Identifier: GPL-2.0-or-later
/* ummu-demo: a process shares its memory with the accelerator. */
#include <stdio.h>
#include <string.h>

#include "demo.h"

static const char usage_text[] =
	"usage: ummu-demo zero-copy [--json]\n"
	"       ummu-demo crc FILE [--verify] [--json]\n"
	"       ummu-demo info [--json]\n"
	"       ummu-demo hold\n"
	"\n"
	"zero-copy  grant two malloc'ed buffers, let the accelerator copy between them in place,\n"
	"           then try four accesses that must be refused\n"
	"crc        CRC-32C of a file, computed by the accelerator on granted memory\n"
	"           (--verify: compare with the CPU)\n"
	"info       what the accelerator is and how much it has done\n"
	"hold       grant two buffers, say where, and keep them until Enter:\n"
	"           for looking at the tables from outside\n"
	"\n"
	"Exit status: 0 done, 1 failed, 2 wrong usage.\n";

static int wrong_usage(const char *what, const char *word)
{
	fprintf(stderr, "ummu-demo: error: %s%s%s (see ummu-demo --help)\n", what, word ? ": " : "", word ? word : "");
	return 2;
}

int main(int argc, char **argv)
{
	const char *command = NULL, *file = NULL;
	bool json = false, verify = false;

	for (int i = 1; i < argc; i++) {
		const char *a = argv[i];

		if (!strcmp(a, "--help") || !strcmp(a, "-h")) {
			fputs(usage_text, stdout);
			return 0;
		}
		if (!strcmp(a, "--json"))
			json = true;
		else if (!strcmp(a, "--verify"))
			verify = true;
		else if (a[0] == '-' && a[1])
			return wrong_usage("unknown option", a);
		else if (!command)
			command = a;
		else if (!file && !strcmp(command, "crc"))
			file = a;
		else
			return wrong_usage("one argument too many", a);
	}
	if (!command)
		return wrong_usage("no command", NULL);
	if (verify && strcmp(command, "crc"))
		return wrong_usage("--verify goes with crc only", NULL);
	if (!strcmp(command, "zero-copy"))
		return demo_zero_copy(json);
	if (!strcmp(command, "info"))
		return demo_info(json);
	if (!strcmp(command, "hold"))
		return json ? wrong_usage("hold has no --json", NULL) : demo_hold();
	if (!strcmp(command, "crc"))
		return file ? demo_crc(file, json, verify) : wrong_usage("crc needs a file", NULL);
	return wrong_usage("unknown command", command);
}
