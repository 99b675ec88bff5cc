/* What the stand-ins for NVIDIA's libraries share: a log of calls with their
   arguments, numbers that tests set, and codes that calls are to return. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char text[1 << 16];
static size_t length;
static struct { char name[64]; long value; } numbers[32];
static struct { char name[64]; long after; int code; } script[32];
static int sticky; /* a fault: all calls return it from then on */
static int quiet;  /* log nothing */

void fake_reset(void) {
	length = 0; text[0] = 0; sticky = 0; quiet = 0;
	memset(numbers, 0, sizeof numbers);
	memset(script, 0, sizeof script);
}

void fake_set(const char *name, long value) {
	if (!strcmp(name, "quiet")) quiet = value;
	for (int i = 0; i < 32; i++)
		if (!numbers[i].name[0] || !strcmp(numbers[i].name, name)) {
			strcpy(numbers[i].name, name);
			numbers[i].value = value;
			return;
		}
}

__attribute__((unused)) static long number(const char *name, long otherwise) {
	for (int i = 0; i < 32; i++)
		if (!strcmp(numbers[i].name, name)) return numbers[i].value;
	return otherwise;
}

/* The nth call of name, counted from 1, is to return code. */
void fake_script(const char *name, long nth, int code) {
	for (int i = 0; i < 32; i++)
		if (!script[i].name[0]) {
			strcpy(script[i].name, name);
			script[i].after = nth;
			script[i].code = code;
			return;
		}
}

const char *fake_log(void) { return text; }

static int scripted(const char *name) {
	if (sticky) return sticky;
	for (int i = 0; i < 32; i++)
		if (!strcmp(script[i].name, name) && script[i].after-- == 1) {
			int code = script[i].code;
			if (code == 700 || code == 719 || code == 46) sticky = code;
			return code;
		}
	return 0;
}

static void note(const char *name, const char *format, ...) {
	if (quiet) return;
	pthread_mutex_lock(&lock);
	va_list args;
	va_start(args, format);
	length += snprintf(text + length, sizeof text - length, "%s", name);
	length += vsnprintf(text + length, sizeof text - length, format, args);
	length += snprintf(text + length, sizeof text - length, "\n");
	va_end(args);
	pthread_mutex_unlock(&lock);
}

/* CALL logs a call and returns what the script wants. */
#define CALL(...) \
	do { \
		note(__func__, " " __VA_ARGS__); \
		int wanted = scripted(__func__); \
		if (wanted) return wanted; \
	} while (0)
