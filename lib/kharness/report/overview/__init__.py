"""The first words of a report: its title, the answer in a sentence with its picture, and the set-up."""
