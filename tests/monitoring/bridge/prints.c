/* Prints STEPS steps as nanoGPT does, and goes on from the last that KEPT names: ./prints STEPS PAUSE KEPT */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **words)
{
	int steps = atoi(words[1]), pause = 1e6 * atof(words[2]), first = 0;
	FILE *kept = fopen(words[3], "r");

	if (kept && fscanf(kept, "%d", &first) != 1)
		first = 0;
	if (kept)
		fclose(kept);
	for (int step = first; step < steps; step++) {
		printf("iter %d: loss %.4f, time 1.00ms\n", step, 4.0 / (step + 1));
		fflush(stdout);
		usleep(pause);
		if (step % 10 == 9 && (kept = fopen(words[3], "w"))) {
			fprintf(kept, "%d\n", step + 1);
			fclose(kept);
		}
	}
	return 0;
}
