// Adds the pages of matrices and sweeps to the page of runs.

import { addDifferences, addPage, addSection } from "../additions.js";
import { MatrixPage } from "./matrix.js";
import { origins } from "./origins.js";
import { MatrixSection } from "./section.js";

addPage("matrix", MatrixPage);
addSection(MatrixSection);
addDifferences(origins);
